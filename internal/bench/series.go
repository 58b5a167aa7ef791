package bench

import (
	"fmt"
	"slices"
	"strings"

	"github.com/farfield-ml/farfield/attention"
)

// Series holds the cases of one curve, which differ only in their position on the axis.
type Series []*Case

// GroupSeries divides cases into series, in the order in which they come.
func GroupSeries(cases []*Case) []Series {
	type curve struct {
		line  Line
		asked string
	}
	at := map[curve]int{}
	var list []Series
	for _, c := range cases {
		l := &c.Line
		key := curve{Line{Mechanism: l.Mechanism, Order: l.Order, Causal: l.Causal, Direction: l.Direction,
			D: l.D, Dv: l.Dv, Heads: l.Heads, Threads: l.Threads}, c.AskedForm}
		i, seen := at[key]
		if !seen {
			i = len(list)
			at[key] = i
			list = append(list, nil)
		}
		list[i] = append(list[i], c)
	}
	return list
}

// Name returns a name for the curve.
func (s Series) Name() string { return s.Method() + ", " + s.Setting() }

// Method names what is computed: the mechanism, its order and the requested form.
func (s Series) Method() string {
	l := &s[0].Line
	if l.Order > 0 {
		return fmt.Sprintf("%s %d %s", l.Mechanism, l.Order, s[0].AskedForm)
	}
	return l.Mechanism + " " + s[0].AskedForm
}

// Setting names the widths, and those of heads, threads and direction that are unusual.
func (s Series) Setting() string {
	l := &s[0].Line
	var b strings.Builder
	fmt.Fprintf(&b, "D %d", l.D)
	if l.Dv != l.D && l.Dv > 0 {
		fmt.Fprintf(&b, ", Dv %d", l.Dv)
	}
	if l.Heads > 1 {
		fmt.Fprintf(&b, ", %d heads", l.Heads)
	}
	if l.Threads > 1 {
		fmt.Fprintf(&b, ", %d threads", l.Threads)
	}
	if l.Direction == backward {
		b.WriteString(", backward")
	}
	return b.String()
}

// MeasuredPoints returns the positions on the axis and the seconds of measured cases.
func (s Series) MeasuredPoints() (x, seconds []float64) {
	for _, c := range s {
		if c.Line.Ms > 0 {
			x, seconds = append(x, c.X), append(seconds, c.Line.Ms/1e3)
		}
	}
	return x, seconds
}

// ExtrapolatedPoints returns the positions of cases that were not measured, and their seconds at
// the speed of the last measured case. It returns nothing if no case was measured.
func (s Series) ExtrapolatedPoints() (x, seconds []float64) {
	speed := 0.0
	for _, c := range s {
		if c.Line.Ms > 0 {
			speed = c.Line.GFLOPS * 1e9
		}
	}
	for _, c := range s {
		if c.Line.Ms == 0 && speed > 0 {
			x, seconds = append(x, c.X), append(seconds, c.FLOPs/speed)
		}
	}
	return x, seconds
}

// isLinear reports whether time grows linearly with the tokens somewhere.
func (s Series) isLinear() bool {
	for _, c := range s {
		if c.Grows {
			return true
		}
	}
	return false
}

// Crossing compares a curve whose cost is quadratic in the tokens with one whose cost is linear.
type Crossing struct {
	Pairs, Linear  Series
	Length         float64 // length from which Linear is faster; 0: see LinearIsFaster
	Seconds        float64 // seconds of both at that length
	LinearIsFaster bool    // Linear is faster at every measured length; if Length is 0 and this is false, it is slower at the end
}

// FindCrossings returns the crossings of all curves that can be compared: those of the same setting
// that were both measured at two positions or more. A curve that chooses between two forms is not
// compared with one of them. It also does not stand for the direct form if that form has a curve in
// the list.
func FindCrossings(list []Series) []Crossing {
	var crossings []Crossing
	for _, linear := range list {
		for _, pairs := range list {
			stands := slices.ContainsFunc(list, func(s Series) bool { return s.Setting() == pairs.Setting() && pairs.standsFor(s) })
			if pairs.isLinear() || !linear.isLinear() || pairs.Setting() != linear.Setting() ||
				linear.standsFor(pairs) || pairs.standsFor(linear) || stands {
				continue
			}
			n, slow, fast := commonPoints(pairs, linear)
			if len(n) < 2 {
				continue
			}
			c := Crossing{Pairs: pairs, Linear: linear, LinearIsFaster: fast[len(n)-1] < slow[len(n)-1]}
			if at, found := FindCrossover(n, slow, fast); found {
				c.Length, c.Seconds, c.LinearIsFaster = at, Interpolate(n, fast, at), false
			}
			crossings = append(crossings, c)
		}
	}
	return crossings
}

// standsFor reports whether t is a form that s chooses among.
func (s Series) standsFor(t Series) bool {
	auto := attention.Auto.String()
	return s[0].Mechanism == t[0].Mechanism && s[0].Order == t[0].Order && s[0].AskedForm == auto && t[0].AskedForm != auto
}

// commonPoints returns the places at which both were measured, and their seconds.
func commonPoints(a, b Series) (x, ya, yb []float64) {
	xa, sa := a.MeasuredPoints()
	xb, sb := b.MeasuredPoints()
	for i, at := range xa {
		for j := range xb {
			if xb[j] == at {
				x, ya, yb = append(x, at), append(ya, sa[i]), append(yb, sb[j])
			}
		}
	}
	return x, ya, yb
}
