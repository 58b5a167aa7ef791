package flags

import (
	"fmt"
	"math"
	"strconv"
)

// Count is a flag for a positive whole number, which may be written as 1e6.
type Count int

// UnmarshalText parses a count. It returns an error unless text is a whole number from
// 1 to 1e15.
func (c *Count) UnmarshalText(text []byte) error {
	x, ok := ParseWhole(string(text))
	if !ok || x < 1 || x > 1e15 {
		return fmt.Errorf("%q: needs a whole number from 1 to 1e15", text)
	}
	*c = Count(x)
	return nil
}

// ParseWhole parses a whole number in digits or in a form such as 1e6, and reports whether text is
// one.
func ParseWhole(text string) (int64, bool) {
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return n, true
	}
	x, err := strconv.ParseFloat(text, 64)
	return int64(x), err == nil && x == math.Trunc(x) && math.Abs(x) <= 1e15
}

// Amount is a flag for a positive finite number.
type Amount float64

// UnmarshalText parses an amount. It returns an error unless text is a finite number
// above 0.
func (a *Amount) UnmarshalText(text []byte) error {
	x, err := strconv.ParseFloat(string(text), 64)
	if err != nil || !(x > 0) || math.IsInf(x, 0) {
		return fmt.Errorf("%q: needs a number above 0", text)
	}
	*a = Amount(x)
	return nil
}
