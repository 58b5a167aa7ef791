package flags

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// FormatMiB formats a number of bytes in MiB.
func FormatMiB(n int64) string { return fmt.Sprintf("%.3g MiB", float64(n)/(1<<20)) }

// ParseBytes parses a number of bytes with an optional unit. It returns an error if
// text is neither.
func ParseBytes(text string) (int64, error) {
	digits, unit := text, int64(1)
	for i, suffix := range []string{"KiB", "MiB", "GiB", "TiB"} {
		if d, ok := strings.CutSuffix(text, suffix); ok {
			digits, unit = d, 1<<(10*(i+1))
		}
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || n <= 0 || n > math.MaxInt64/unit {
		return 0, fmt.Errorf("%q is not a number of bytes, such as 1000000 or 64MiB", text)
	}
	return n * unit, nil
}
