package train

import (
	"os"
	"path/filepath"
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
	f.Add(uint8(4), []byte(`{"mean":[1],"deviation":[2]}`))
	f.Add(uint8(0), []byte(`{"version":2,"seed":1,"model":{"layers":1,"set":{"a":"b"}}}`))
	f.Add(uint8(1), []byte("{\"step\":1,\"loss\":2.5}\n{\"step\":1,\"eval\":\"look\"}\n"))
	f.Add(uint8(2), []byte("\"a\"\n\"\\xff\"\n"))
	f.Add(uint8(5), []byte("\"x\"\n\"y\"\n"))
	f.Add(uint8(3), []byte("step-00000030\n"))
	f.Add(uint8(3), []byte("../../x"))
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
