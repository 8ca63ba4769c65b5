package connect

import "testing"

func TestAddresses(t *testing.T) {
	for text, wanted := range map[string]string{
		"localhost": "localhost:10086", ":80": "127.0.0.1:80", "http://[::1]/": "[::1]:10086", "[::1]:80": "[::1]:80",
		"a:1,b": "a:1,b:10086",
	} {
		if found, isTLS, err := Addresses(text); err != nil || isTLS || found != wanted {
			t.Errorf("%s: %s, %v, %v", text, found, isTLS, err)
		}
	}
	for _, text := range []string{
		"ftp://there:1", "http://there:80/a/b", "there:+80", "there:0", "there:65536", "::1", "", "a:1,", "http://a:1,https://b:10",
	} {
		if found, _, err := Addresses(text); err == nil {
			t.Errorf("%s: %s", text, found)
		}
	}
}
