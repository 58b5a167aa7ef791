package framed

import (
	"bytes"
	"crypto/sha256"
	"strings"
	"testing"
)

const magic = "a test"

var format = Format{"test", magic, 3, SHA256}

func TestPartsAreWhatWasAppended(t *testing.T) {
	front := []byte("before")
	for _, parts := range [][][]byte{{}, {nil}, {[]byte("one"), nil, []byte("three")}} {
		b := format.Append(bytes.Clone(front), parts...)
		got, err := format.ReadParts(b[len(front):], len(parts))
		if err != nil {
			t.Fatal(err)
		}
		for i, p := range parts {
			if !bytes.Equal(got[i], p) {
				t.Errorf("part %d is %q, was %q", i, got[i], p)
			}
		}
	}
}

func TestDamageIsRefused(t *testing.T) {
	b := format.Append(nil, []byte("one"), []byte("two"))
	for i := range b {
		c := bytes.Clone(b)
		c[i] ^= 1
		if _, err := format.ReadParts(c, 2); err == nil {
			t.Errorf("byte %d may be any", i)
		}
		if _, err := format.ReadParts(b[:i], 2); err == nil {
			t.Errorf("the first %d bytes are enough", i)
		}
	}
	for want, f := range map[string]func() error{
		"version is 3, this program reads 4": func() error { _, err := (&Format{"test", magic, 4, SHA256}).ReadParts(b, 2); return err },
		"ends before part 3 of 3":            func() error { _, err := format.ReadParts(b, 3); return err },
		"11 bytes follow its last part":      func() error { _, err := format.ReadParts(b, 1); return err },
		"part 1 needs 4294967296 bytes": func() error {
			// The part's own bytes, in the place of its length.
			b := format.Append(nil, []byte{0, 0, 0, 0, 1, 0, 0, 0})
			head := len(magic) + 4
			_, err := format.ReadParts(sum(append(bytes.Clone(b[:head]), b[head+8:len(b)-sha256.Size]...)), 1)
			return err
		},
	} {
		if err := f(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// sum appends the checksum that ReadParts expects.
func sum(b []byte) []byte {
	x := sha256.Sum256(b)
	return append(bytes.Clone(b), x[:]...)
}

func FuzzParts(f *testing.F) {
	f.Add(format.Append(nil, []byte("one"), []byte("two")))
	f.Add([]byte(magic))
	f.Fuzz(func(t *testing.T, data []byte) {
		all := sum(data)
		parts, err := format.ReadParts(all, 2)
		part, _, ferr := format.ReadFirst(bytes.NewReader(all), int64(len(all)), 1<<20)
		if err != nil {
			return
		}
		if ferr != nil || !bytes.Equal(part, parts[0]) {
			t.Errorf("%x: the first part is %q, %v, alone it is %q", data, parts[0], ferr, part)
		}
		if got := format.Append(nil, parts...); !bytes.Equal(got, sum(data)) {
			t.Errorf("%x is read as %q", data, parts)
		}
	})
}

func TestFirstPartIsReadAndVerified(t *testing.T) {
	b := format.Append(nil, []byte("one"), bytes.Repeat([]byte("two"), 1000))
	first := func(b []byte, most int64) (string, error) {
		part, _, err := format.ReadFirst(bytes.NewReader(b), int64(len(b)), most)
		return string(part), err
	}
	if got, err := first(b, 3); got != "one" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	long := format.Append(nil)
	long = append(long[:len(long)-sha256.Size], 255, 255, 255, 255, 255, 255, 255, 255)
	broken := bytes.Clone(b)
	broken[len(b)/2]++
	for want, b := range map[string][]byte{
		"begins with \"someth\"":             []byte("something else that is long enough, longer than sixty bytes of text"),
		"version is 4":                       (&Format{"test", magic, 4, SHA256}).Append(nil, nil),
		"corrupt":                            broken,
		"part 1 needs 18446744073709551615":  sum(long),
		"part 1 has 3 bytes, 2 are possible": b,
		"truncated: 0 bytes":                 nil,
	} {
		if _, err := first(b, 2); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
