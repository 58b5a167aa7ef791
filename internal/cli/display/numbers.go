package display

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/farfield-ml/farfield/internal/task"
)

// FormatPercent formats the share x as a percentage with one decimal.
func FormatPercent(x float64) string { return fmt.Sprintf("%.1f%%", 100*x) }

// FormatValue formats a score or loss of a task with four decimals, and squared errors, which
// may be small, with four digits.
func FormatValue(metric task.Metric, x float64) string {
	if metric == task.MSE {
		return fmt.Sprintf("%.4g", x)
	}
	return fmt.Sprintf("%.4f", x)
}

// FormatTick formats a time for the axis of a figure.
func FormatTick(s float64) string {
	if s > 1e3 {
		return fmt.Sprintf("%.0e s", s)
	}
	return FormatSeconds(s)
}

// FormatSize formats a number of bytes with a unit.
func FormatSize(bytes int64) string {
	switch {
	case bytes >= 1e9:
		return fmt.Sprintf("%.1f GB", float64(bytes)/1e9)
	case bytes >= 1e6:
		return fmt.Sprintf("%.1f MB", float64(bytes)/1e6)
	case bytes >= 1e3:
		return fmt.Sprintf("%.1f kB", float64(bytes)/1e3)
	}
	return fmt.Sprintf("%d B", bytes)
}

// FormatCrossover formats a length with two digits.
func FormatCrossover(n float64) string {
	if n == 0 {
		return "(not met)"
	}
	digits := math.Pow(10, math.Floor(math.Log10(n))-1)
	return fmt.Sprintf("%.0f", math.Round(n/digits)*digits)
}

// FormatBound formats a bound of errors, or a dash if there is none.
func FormatBound(x Number) string {
	if math.IsInf(float64(x), 1) {
		return "–"
	}
	return fmt.Sprintf("%.1e", float64(x))
}

// FormatLength formats a number of tokens; 0 stands for a length beyond all that were tried.
func FormatLength(n int) string {
	if n == 0 {
		return "1e9 and more"
	}
	return strconv.Itoa(n)
}

// FormatAmount formats x with three digits, an SI prefix and the unit.
func FormatAmount(x float64, unit string) string {
	prefix := ""
	for _, p := range []string{"k", "M", "G", "T", "P", "E"} {
		if x < 999.5 {
			break
		}
		x, prefix = x/1000, p
	}
	return strings.TrimSpace(roundDigits(x) + " " + prefix + unit)
}

// FormatBytes formats a number of bytes; 0 means unknown.
func FormatBytes(x float64) string {
	if x == 0 {
		return "-"
	}
	unit := "B"
	for _, u := range []string{"KiB", "MiB", "GiB", "TiB"} {
		if x < 1024 {
			break
		}
		x, unit = x/1024, u
	}
	return roundDigits(x) + " " + unit
}

// FormatSeconds formats a time; 0 means unknown.
func FormatSeconds(s float64) string {
	switch {
	case s == 0:
		return "-"
	case s < 0.9995e-3:
		return roundDigits(s*1e6) + " µs"
	case s < 0.9995:
		return roundDigits(s*1e3) + " ms"
	case s < 3600:
		return roundDigits(s) + " s"
	}
	return roundDigits(s/3600) + " h"
}

// roundDigits writes x with three digits, or with all before the point.
func roundDigits(x float64) string {
	if math.Abs(x) >= 100 {
		return fmt.Sprintf("%.0f", x)
	}
	return fmt.Sprintf("%.3g", x)
}

// Span formats seconds in their largest unit.
func Span(s float64) string {
	switch {
	case s < 90:
		return fmt.Sprintf("%.0f s", s)
	case s < 90*60:
		return fmt.Sprintf("%.0f min", s/60)
	case s < 48*3600:
		return fmt.Sprintf("%.0f h", s/3600)
	}
	return fmt.Sprintf("%.0f days", s/86400)
}
