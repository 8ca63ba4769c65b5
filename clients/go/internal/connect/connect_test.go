package connect

import (
	"strings"
	"testing"
)

func TestAddresses(t *testing.T) {
	for text, wanted := range map[string]string{
		"localhost": "localhost:10086", ":80": "127.0.0.1:80", "http://[::1]/": "[::1]:10086", "[::1]:80": "[::1]:80",
		"a:1,b": "a:1,b:10086",
	} {
		if found, isTLS, err := Addresses(text); err != nil || isTLS || found != wanted {
			t.Errorf("%s: %s, %v, %v", text, found, isTLS, err)
		}
	}
	for text, want := range map[string]string{
		"ftp://there:1":           "http://there:1 or https://there:1",
		"http://there:80/a/b":     "without a path: http://there:80",
		"there:+80":               "HOST:PORT with a port up to 65535, as there:10086",
		"there:0":                 "HOST:PORT with a port from 1 to 65535, as there:10086",
		"::1":                     "HOST:PORT, as 127.0.0.1:10086 or [::1]:10086",
		"":                        "HOST:PORT, as 127.0.0.1:10086 or [::1]:10086",
		"a:1,":                    "HOST:PORT, as 127.0.0.1:10086 or [::1]:10086",
		"http://a:1,https://b:10": "of one kind with the others: http:// throughout, or https://",
	} {
		if _, _, err := Addresses(text); err == nil || !strings.HasSuffix(err.Error(), "it must be "+want) {
			t.Errorf("%s: %v", text, err)
		}
	}
}
