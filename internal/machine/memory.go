// Package machine reports free memory and the peak memory of the process.
package machine

import (
	"bytes"
	"os"
	"runtime"
	"strconv"
)

// unknownMemory is the assumed free memory of systems that do not report it.
const unknownMemory = 16 << 30

// FreeMemory returns the available memory in bytes; 16 GiB if the system does not report it (all but
// Linux).
func FreeMemory() int64 {
	if text, err := os.ReadFile("/proc/meminfo"); err == nil {
		if n, ok := readKibibytes(text, "MemAvailable:"); ok {
			return n
		}
	}
	return unknownMemory
}

// PeakMemory returns the peak memory of the process in bytes: the resident set on Linux, otherwise the
// memory obtained by the Go runtime.
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

// ResidentMemory returns the resident memory of the process in bytes; 0 if the system does not report it
// (all but Linux).
func ResidentMemory() int64 {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	n, _ := readKibibytes(text, "VmRSS:")
	return n
}

// readKibibytes returns the bytes in the line that begins with name and counts kB.
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
