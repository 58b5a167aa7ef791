// Package machine reports free memory, and the memory that the process uses.
package machine

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
)

// Check returns an error if fewer than bytes of memory are free. what needs them, for the message.
func Check(what string, bytes float64) error {
	if free := FreeMemory(); bytes > float64(free) {
		return fmt.Errorf("%s needs %.0f bytes of memory, %d are free", what, bytes, free)
	}
	return nil
}

// FreeMemory returns the available memory in bytes: the least of those of the machine, of the
// control groups of the process, and of its address space (ulimit -v). It returns math.MaxInt64 if
// the system does not report it (all but Linux).
func FreeMemory() int64 {
	free := int64(math.MaxInt64)
	if text, err := os.ReadFile("/proc/meminfo"); err == nil {
		if n, ok := readKibibytes(text, "MemAvailable:"); ok {
			free = n
		}
	}
	if list, err := os.ReadFile("/proc/self/cgroup"); err == nil {
		free = min(free, freeInGroups("/sys/fs/cgroup", string(list)))
	}
	limits, err := os.ReadFile("/proc/self/limits")
	status, err2 := os.ReadFile("/proc/self/status")
	if err == nil && err2 == nil {
		free = min(free, freeAddresses(limits, status))
	}
	return free
}

// freeAddresses returns the bytes of address space that the process may still take, by the texts of its files limits
// and status; math.MaxInt64: there is no limit.
func freeAddresses(limits, status []byte) int64 {
	used, _ := readKibibytes(status, "VmSize:")
	for line := range bytes.Lines(limits) {
		if rest, ok := bytes.CutPrefix(line, []byte("Max address space")); ok {
			if fields := bytes.Fields(rest); len(fields) > 0 {
				if limit, err := strconv.ParseInt(string(fields[0]), 10, 64); err == nil {
					return max(0, limit-used)
				}
			}
		}
	}
	return math.MaxInt64
}

// freeInGroups returns the least memory that the limits of control groups and their parents leave; math.MaxInt64:
// there is no limit. list has the lines of /proc/self/cgroup, root the folders of the groups. The files of a parent
// that a container does not see are missing.
func freeInGroups(root, list string) int64 {
	free := int64(math.MaxInt64)
	for line := range strings.Lines(list) {
		_, rest, _ := strings.Cut(strings.TrimSpace(line), ":")
		controllers, group, ok := strings.Cut(rest, ":")
		folder, limit, usage, prefix := root, "memory.max", "memory.current", "" // version 2
		if controllers != "" {
			folder, limit, usage, prefix = filepath.Join(root, "memory"), "memory.limit_in_bytes", "memory.usage_in_bytes", "total_"
		}
		if !ok || controllers != "" && !slices.Contains(strings.Split(controllers, ","), "memory") {
			continue
		}
		for group = path.Clean("/" + group); ; group = path.Dir(group) {
			dir := filepath.Join(folder, filepath.FromSlash(group))
			bound, ok := readField(filepath.Join(dir, limit), "") // "max" is no number
			if used, found := readField(filepath.Join(dir, usage), ""); ok && found {
				// Pages of files are given back where memory is needed, as MemAvailable counts them.
				idle, _ := readField(filepath.Join(dir, "memory.stat"), prefix+"inactive_file ")
				active, _ := readField(filepath.Join(dir, "memory.stat"), prefix+"active_file ")
				free = min(free, max(0, bound-max(0, used-idle-active)))
			}
			if group == "/" {
				break
			}
		}
	}
	return free
}

// readField returns the number after name in the line of a file that begins with name.
func readField(file, name string) (n int64, found bool) {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, false
	}
	for line := range bytes.Lines(text) {
		if rest, ok := bytes.CutPrefix(line, []byte(name)); ok {
			n, err := strconv.ParseInt(string(bytes.TrimSpace(rest)), 10, 64)
			return n, err == nil
		}
	}
	return 0, false
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
