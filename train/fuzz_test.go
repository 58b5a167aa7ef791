package train

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/internal/check"
)

// FuzzFolder reads any bytes as each of the files that tell of a run and of a
// checkpoint.
func FuzzFolder(f *testing.F) {
	readers := []struct {
		name string
		read func(t *testing.T, dir string)
	}{
		{configFile, func(_ *testing.T, dir string) { _, _ = RunConfig(dir) }},
		{manifestFile, func(_ *testing.T, dir string) { _, _ = checkManifest(dir) }},
		{metricsFile, func(_ *testing.T, dir string) { _, _, _ = ReadMetrics(dir) }},
		{classesFile, func(t *testing.T, dir string) {
			if classes, err := readClasses(dir, 2); err == nil && len(classes) != 2 {
				t.Errorf("2 classes are named %q", classes)
			}
		}},
		{latestFile, func(t *testing.T, dir string) {
			if path, err := latestCheckpoint(dir); err == nil && filepath.Dir(path) != filepath.Join(dir, checkpointsFolder) {
				t.Errorf("the latest checkpoint is %q", path)
			}
		}},
		{scalesFile, func(t *testing.T, dir string) {
			if s, err := readScales(dir); err == nil && len(s.Mean) != len(s.Deviation) {
				t.Errorf("scales are %v", s)
			}
		}},
		{columnsFile, func(t *testing.T, dir string) {
			if columns, err := readColumns(dir, 2); err == nil && columns != nil && len(columns) != 2 {
				t.Errorf("2 columns are named %q", columns)
			}
		}},
	}
	f.Add(uint8(5), []byte(`{"mean":[1],"deviation":[2]}`))
	f.Add(uint8(0), []byte(`{"version":2,"seed":1,"model":{"layers":1,"set":{"a":"b"}}}`))
	f.Add(uint8(1), sealed(f, manifest{Format: checkpointFormat, Version: checkpointVersion, Files: map[string]fileSum{"../x": {Bytes: 1}, manifestFile: {}}}))
	f.Add(uint8(2), []byte("{\"step\":1,\"loss\":2.5}\n{\"step\":1,\"eval\":\"look\"}\n"))
	f.Add(uint8(3), []byte("\"a\"\n\"\\xff\"\n"))
	f.Add(uint8(6), []byte("\"x\"\n\"y\"\n"))
	f.Add(uint8(4), []byte("step-00000030\n"))
	f.Add(uint8(4), []byte("../../x"))
	f.Fuzz(func(t *testing.T, which uint8, data []byte) {
		r := readers[int(which)%len(readers)]
		dir := t.TempDir()
		path := filepath.Join(dir, r.name)
		if r.name == latestFile {
			path = filepath.Join(dir, checkpointsFolder, latestFile)
			if err := os.Mkdir(filepath.Dir(path), 0o777); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(path, data, 0o666); err != nil {
			t.Fatal(err)
		}
		if n := check.AllocatedBytes(func() { r.read(t, dir) }); n > 4<<20+512*int64(len(data)) {
			t.Errorf("%s: %d bytes are read in %d bytes of memory", r.name, len(data), n)
		}
	})
}

// sealed is a manifest that says its own checksum.
func sealed(t testing.TB, m manifest) []byte {
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
		file       fileSum
	}{
		{"inside", "", good},
		{"../outside", "which is no file of the folder", good},
		{outside, "which is no file of the folder", good},
		{"..", "which is no file of the folder", good},
		{".", "is no regular file", good},
		{"inside", "it has 6 bytes, was written with 5", fileSum{5, good.Sum}},
	} {
		m := manifest{Format: checkpointFormat, Version: checkpointVersion, Files: map[string]fileSum{c.name: c.file}}
		if err := os.WriteFile(filepath.Join(dir, manifestFile), sealed(t, m), 0o666); err != nil {
			t.Fatal(err)
		}
		_, err := checkManifest(dir)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: error is %v, want %q", c.name, err, c.want)
		}
	}
}
