package cpu

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// readSystem sets the fields that Linux reports in /proc and /sys.
func (i *Info) readSystem() {
	if text, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		i.Model = modelName(string(text))
	}
	folders, _ := filepath.Glob("/sys/devices/system/cpu/cpu0/cache/index*")
	for _, folder := range folders {
		read := func(name string) string {
			text, _ := os.ReadFile(filepath.Join(folder, name))
			return strings.TrimSpace(string(text))
		}
		if kind := read("type"); kind != "Data" && kind != "Unified" {
			continue
		}
		switch n := parseSize(read("size")); read("level") {
		case "1":
			i.L1 = n
		case "2":
			i.L2 = n
		case "3":
			i.L3 = n
		}
	}
}

// modelName returns the first model name in the text of /proc/cpuinfo.
func modelName(text string) string {
	for line := range strings.Lines(text) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// parseSize parses a number of bytes such as 1024K. It returns 0 if text is malformed.
func parseSize(text string) int {
	unit := 1
	switch {
	case strings.HasSuffix(text, "K"):
		unit = 1 << 10
	case strings.HasSuffix(text, "M"):
		unit = 1 << 20
	}
	n, err := strconv.Atoi(strings.TrimRight(text, "KM"))
	if err != nil {
		return 0
	}
	return n * unit
}
