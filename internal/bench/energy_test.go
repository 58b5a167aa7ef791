package bench

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"
)

func TestEnergy(t *testing.T) {
	root := t.TempDir()
	set := func(name string, energy int) {
		dir := filepath.Join(root, name)
		if err := os.MkdirAll(dir, 0o777); err != nil {
			t.Fatal(err)
		}
		for file, x := range map[string]int{"energy_uj": energy, "max_energy_range_uj": 10_000_000} {
			if err := os.WriteFile(filepath.Join(dir, file), []byte(strconv.Itoa(x)+"\n"), 0o666); err != nil {
				t.Fatal(err)
			}
		}
	}
	set("intel-rapl:0", 1_000_000)
	set("intel-rapl:0:0", 1_000_000) // a part of the first
	set("intel-rapl:1", 9_000_000)
	e := openEnergy(root)
	before := e.readCounters()
	set("intel-rapl:0", 3_500_000)
	set("intel-rapl:0:0", 2_000_000)
	set("intel-rapl:1", 2_000_000) // has begun anew
	if got := e.joulesSince(before); got != 2.5+3 {
		t.Errorf("%g J, want 5.5", got)
	}
}

func TestNoEnergy(t *testing.T) {
	e := openEnergy(filepath.Join(t.TempDir(), "none"))
	if got := e.joulesSince(e.readCounters()); got != 0 {
		t.Errorf("%g J where nothing is told", got)
	}
}
