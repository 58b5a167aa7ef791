package framed

import (
	"bytes"
	"crypto/sha256"
	"strings"
	"testing"
)

const magic = "a test"

func TestPartsAreWhatWasAppended(t *testing.T) {
	front := []byte("before")
	for _, parts := range [][][]byte{{}, {nil}, {[]byte("one"), nil, []byte("three")}} {
		b := Append(bytes.Clone(front), magic, 3, parts...)
		got, err := ReadParts(b[len(front):], magic, 3, len(parts))
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
	b := Append(nil, magic, 3, []byte("one"), []byte("two"))
	for i := range b {
		c := bytes.Clone(b)
		c[i] ^= 1
		if _, err := ReadParts(c, magic, 3, 2); err == nil {
			t.Errorf("byte %d may be any", i)
		}
		if _, err := ReadParts(b[:i], magic, 3, 2); err == nil {
			t.Errorf("the first %d bytes are enough", i)
		}
	}
	for want, f := range map[string]func() error{
		"version is 3, this program reads 4": func() error { _, err := ReadParts(b, magic, 4, 2); return err },
		"ends before part 3 of 3":            func() error { _, err := ReadParts(b, magic, 3, 3); return err },
		"does not end with its last part":    func() error { _, err := ReadParts(b, magic, 3, 1); return err },
		"part 1 has 4294967296 bytes": func() error {
			// The part's own bytes, in the place of its length.
			b := Append(nil, magic, 3, []byte{0, 0, 0, 0, 1, 0, 0, 0})
			head := len(magic) + 4
			_, err := ReadParts(sum(append(bytes.Clone(b[:head]), b[head+8:len(b)-sha256.Size]...)), magic, 3, 1)
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
	f.Add(Append(nil, magic, 3, []byte("one"), []byte("two")))
	f.Add([]byte(magic))
	f.Fuzz(func(t *testing.T, data []byte) {
		all := sum(data)
		parts, err := ReadParts(all, magic, 3, 2)
		part, ferr := ReadFirst(bytes.NewReader(all), int64(len(all)), magic, 3, 1<<20)
		if err != nil {
			return
		}
		if ferr != nil || !bytes.Equal(part, parts[0]) {
			t.Errorf("%x: the first part is %q, %v, alone it is %q", data, parts[0], ferr, part)
		}
		if got := Append(nil, magic, 3, parts...); !bytes.Equal(got, sum(data)) {
			t.Errorf("%x is read as %q", data, parts)
		}
	})
}

func TestFirstPartIsReadAndVerified(t *testing.T) {
	b := Append(nil, magic, 3, []byte("one"), bytes.Repeat([]byte("two"), 1000))
	first := func(b []byte, most int64) (string, error) {
		part, err := ReadFirst(bytes.NewReader(b), int64(len(b)), magic, 3, most)
		return string(part), err
	}
	if got, err := first(b, 3); got != "one" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	long := Append(nil, magic, 3)
	long = append(long[:len(long)-sha256.Size], 255, 255, 255, 255, 255, 255, 255, 255)
	broken := bytes.Clone(b)
	broken[len(b)/2]++
	for want, b := range map[string][]byte{
		"is not a file":                      []byte("something else that is long enough, longer than sixty bytes of text"),
		"version is 4":                       Append(nil, magic, 4, nil),
		"damaged":                            broken,
		"part 1 has 18446744073709551615":    sum(long),
		"part 1 has 3 bytes, 2 are possible": b,
		"that begins with":                   nil,
	} {
		if _, err := first(b, 2); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
