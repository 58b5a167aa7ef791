package reproduce

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/farfield-ml/farfield/internal/check"
)

// FuzzRecord reads any bytes as the saved result of a piece.
func FuzzRecord(f *testing.F) {
	f.Add([]byte(`{"piece":"a","config":{"n":1},"build":{"revision":"0123456789abcdef"},"result":[1,2]}`))
	f.Add([]byte(`{"piece":"a","config":{"n":2}}`))
	f.Add([]byte(`{"config":`))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, p := store{t.TempDir()}, &Piece{Name: "a", Config: map[string]int{"n": 1}}
		if err := os.Mkdir(filepath.Dir(s.path(p)), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(s.path(p), data, 0o666); err != nil {
			t.Fatal(err)
		}
		var r *Record
		var err error
		if n := check.AllocatedBytes(func() { r, err = s.load(p) }); n > 1<<20+64*int64(len(data)) {
			t.Errorf("%d bytes are read in %d bytes of memory", len(data), n)
		}
		if err == nil && r != nil && (r.Piece != "a" || r.Build.String() == "") {
			t.Errorf("%+v", r)
		}
	})
}
