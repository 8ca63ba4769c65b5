# Takes the prefix of our descriptors' packages out of the methods' names on the wire, in the file STUBS.
file(READ "${STUBS}" text)
string(REPLACE "\"/quire." "\"/" named "${text}")
if(named STREQUAL text)
  message(FATAL_ERROR "${STUBS} has no method of a package that begins with quire")
endif()
file(WRITE "${STUBS}" "${named}")
