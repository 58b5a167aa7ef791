package vectors

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/internal/cli/records"
	"github.com/farfield-ml/farfield/internal/safetensors"
)

// writeIndex writes an index of two texts, and returns its path.
func writeIndex(t testing.TB) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "index")
	err := WriteIndex(path, []records.Setting{{Name: "--model", Value: "a"}}, []Digest{DigestText("one"), DigestText("two")}, []float32{1, 2, 3, 4, 5, 6}, 3)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func TestIndexKeepsVectorsDigestsAndSettings(t *testing.T) {
	path := writeIndex(t)
	x, err := OpenIndex(path)
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	rows := make([]float32, 9)
	n, err := x.ReadRows(rows)
	if err != nil || n != 2 || !slices.Equal(rows[:6], []float32{1, 2, 3, 4, 5, 6}) {
		t.Errorf("rows are %v, %v", rows, err)
	}
	if !slices.Equal(x.Digests, []Digest{DigestText("one"), DigestText("two")}) || !slices.Equal(x.Settings, []records.Setting{{Name: "--model", Value: "a"}}) {
		t.Errorf("digests are %x, settings %v", x.Digests, x.Settings)
	}
	// Other programs read it as a file of vectors.
	named := filepath.Join(t.TempDir(), "index.safetensors")
	if err := os.Link(path, named); err != nil {
		t.Fatal(err)
	}
	r, err := Open(nil, named)
	if err != nil || r.Width() != 3 || r.Rows() != 2 {
		t.Fatal(r, err)
	}
	r.Close()
}

func TestDamagedIndexIsRefused(t *testing.T) {
	path := writeIndex(t)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	replace := func(old, by string) func([]byte) []byte {
		return func(b []byte) []byte { return bytes.Replace(b, []byte(old), []byte(by), 1) }
	}
	for want, change := range map[string]func([]byte) []byte{
		"is damaged: its checksum is":            func(b []byte) []byte { b[len(b)-1] ^= 1; return b },
		"vectors: row 0, element 2 is NaN":       func(b []byte) []byte { copy(b[len(b)-80:], "\x00\x00\xc0\x7f"); return b },
		"version is \"2\", this program reads 1": replace(`index":"1"`, `index":"2"`),
		"is no index that search writes":         replace("farfield index", "farfield other"),
		"data ends at 88, the file at 87":        func(b []byte) []byte { return b[:len(b)-1] },
		"settings: json: cannot unmarshal":       replace(`:\"a\"`, `:12345`),
	} {
		if err := os.WriteFile(path, change(bytes.Clone(whole)), 0o666); err != nil {
			t.Fatal(err)
		}
		if _, err := OpenIndex(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error is %v, want %q", err, want)
		}
	}
}

// FuzzIndex: no file makes the reader fail otherwise than with an error, and what it takes has a digest and a
// finite vector for each row.
func FuzzIndex(f *testing.F) {
	whole, err := os.ReadFile(writeIndex(f))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole)
	f.Add(bytes.Replace(whole, []byte("[2,32]"), []byte("[1,64]"), 1))
	f.Fuzz(func(t *testing.T, data []byte) {
		file, err := safetensors.New(bytes.NewReader(data), int64(len(data)))
		if err != nil {
			return
		}
		x, err := newIndex(file)
		if err != nil {
			return
		}
		rows := make([]float32, x.Width()*(len(x.Digests)+1))
		if n, err := x.ReadRows(rows); err != nil || n != len(x.Digests) {
			t.Errorf("%d rows for %d digests, %v", n, len(x.Digests), err)
		}
	})
}
