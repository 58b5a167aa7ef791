package bench

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// processor is the energy counter of this machine.
var processor = openEnergy("/sys/class/powercap")

// energy reads what the processor's packages have used, as Linux tells in its
// powercap file system (RAPL of Intel and AMD). It has no packages where the
// system does not tell, or not to everybody.
type energy struct{ packages []energyPackage }

type energyPackage struct {
	path string
	wrap float64 // microjoules at which the counter begins anew
}

func openEnergy(root string) *energy {
	e := new(energy)
	paths, _ := filepath.Glob(filepath.Join(root, "intel-rapl:*", "energy_uj"))
	for _, path := range paths {
		dir := filepath.Dir(path)
		if strings.Count(filepath.Base(dir), ":") != 1 { // a part of a package
			continue
		}
		wrap, ok := readNumber(filepath.Join(dir, "max_energy_range_uj"))
		if _, readable := readNumber(path); ok && readable {
			e.packages = append(e.packages, energyPackage{path, wrap})
		}
	}
	return e
}

// readCounters returns the counters, in microjoules.
func (e *energy) readCounters() []float64 {
	var list []float64
	for _, p := range e.packages {
		x, _ := readNumber(p.path)
		list = append(list, x)
	}
	return list
}

// joulesSince returns the joules used since read; 0 where the system has no counters.
func (e *energy) joulesSince(before []float64) float64 {
	var sum float64
	for i, now := range e.readCounters() {
		d := now - before[i]
		if d < 0 {
			d += e.packages[i].wrap
		}
		sum += d
	}
	return sum / 1e6
}

func readNumber(path string) (float64, bool) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, false
	}
	x, err := strconv.ParseFloat(strings.TrimSpace(string(text)), 64)
	return x, err == nil
}
