// Package machine reads how much memory the machine has free and the process has held.
package machine

import (
	"bytes"
	"os"
	"runtime"
	"strconv"
)

// unknownMemory is what a machine is taken to have that does not tell.
const unknownMemory = 16 << 30

// FreeMemory returns the bytes that programs can still have; 16 GiB where the system
// does not report them (all but Linux).
func FreeMemory() int64 {
	if text, err := os.ReadFile("/proc/meminfo"); err == nil {
		if n, ok := readKibibytes(text, "MemAvailable:"); ok {
			return n
		}
	}
	return unknownMemory
}

// PeakMemory returns the most bytes that the process has held: its resident set
// where the system tells (Linux), else what the Go runtime has asked for.
func PeakMemory() int64 {
	if text, err := os.ReadFile("/proc/self/status"); err == nil {
		if n, ok := readKibibytes(text, "VmHWM:"); ok {
			return n
		}
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.Sys)
}

// readKibibytes returns the bytes that the line with that name tells in kB.
func readKibibytes(text []byte, name string) (n int64, found bool) {
	for line := range bytes.Lines(text) {
		if rest, ok := bytes.CutPrefix(line, []byte(name)); ok {
			digits := bytes.TrimSpace(bytes.TrimSuffix(bytes.TrimSpace(rest), []byte("kB")))
			n, err := strconv.ParseInt(string(digits), 10, 64)
			return n << 10, err == nil
		}
	}
	return 0, false
}
