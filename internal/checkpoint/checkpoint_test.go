package checkpoint

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/internal/check"
)

// FuzzManifest reads any bytes as the manifest of a checkpoint.
func FuzzManifest(f *testing.F) {
	f.Add(sealed(f, Manifest{Format: Format, Version: Version, Files: map[string]FileSum{"../x": {Bytes: 1}, ManifestFile: {}}}))
	f.Fuzz(func(t *testing.T, data []byte) {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, ManifestFile), data, 0o666); err != nil {
			t.Fatal(err)
		}
		if n := check.AllocatedBytes(func() { _, _ = Verify(dir) }); n > 4<<20+512*int64(len(data)) {
			t.Errorf("%d bytes are read in %d bytes of memory", len(data), n)
		}
	})
}

// sealed is a manifest that says its own checksum.
func sealed(t testing.TB, m Manifest) []byte {
	t.Helper()
	var err error
	if m.Sum, err = m.checksum(); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// A checkpoint of a stranger's may name files of its folder alone, and what it names
// is not read before it has the size that is written down.
func TestManifestsStayInTheirFolder(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "checkpoint")
	if err := os.Mkdir(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	outside := filepath.Join(filepath.Dir(dir), "outside")
	for _, path := range []string{outside, filepath.Join(dir, "inside")} {
		if err := os.WriteFile(path, []byte("secret"), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	good, err := hashFile(outside)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, want string
		file       FileSum
	}{
		{"inside", "", good},
		{"../outside", "which is no file of the folder", good},
		{outside, "which is no file of the folder", good},
		{"..", "which is no file of the folder", good},
		{".", "is no regular file", good},
		{"inside", "it has 6 bytes, was written with 5", FileSum{5, good.Sum}},
	} {
		m := Manifest{Format: Format, Version: Version, Files: map[string]FileSum{c.name: c.file}}
		if err := os.WriteFile(filepath.Join(dir, ManifestFile), sealed(t, m), 0o666); err != nil {
			t.Fatal(err)
		}
		_, err := Verify(dir)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: error is %v, want %q", c.name, err, c.want)
		}
	}
}

// TestFailedSaveLeavesTheFolderAsItWas fails after the first file.
func TestFailedSaveLeavesTheFolderAsItWas(t *testing.T) {
	t.Parallel()
	empty := t.TempDir()
	for _, dir := range []string{empty, filepath.Join(empty, "new")} {
		_, before := os.Stat(dir)
		err := saveInto(dir, func() error {
			if err := os.WriteFile(filepath.Join(dir, VocabFile), nil, 0o666); err != nil {
				t.Fatal(err)
			}
			return os.ErrInvalid
		})
		if !errors.Is(err, os.ErrInvalid) {
			t.Error(err)
		}
		if _, after := os.Stat(dir); (before == nil) != (after == nil) {
			t.Errorf("%s: %v, was %v", dir, after, before)
		}
		if list, _ := os.ReadDir(dir); len(list) > 0 {
			t.Errorf("%s has %v", dir, list)
		}
	}
}
