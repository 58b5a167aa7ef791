package nn

import (
	"encoding/binary"
)

// headerFields returns where the fields of the header of a snapshot of a state begin. Fields
// of text begin with their length.
func headerFields(data []byte) map[string]int {
	at := 8
	fields := map[string]int{"bytes of an element": at}
	at += 8
	for _, name := range []string{"kind of state", "mechanism", "setting"} {
		fields[name] = at
		at += 8 + int(binary.LittleEndian.Uint64(data[at:]))
	}
	for _, name := range []string{"checksum of the parameters", "B", "H", "Hkv", "D", "Dv", "chunk", "carry", "tokens"} {
		fields[name] = at
		at += 8
	}
	return fields
}

// must returns x, or panics with err.
func must[T any](x T, err error) T {
	if err != nil {
		panic(err)
	}
	return x
}
