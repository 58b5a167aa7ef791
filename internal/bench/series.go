package bench

import (
	"fmt"
	"slices"
	"strings"

	"github.com/farfield-ml/farfield/attention"
)

// Series are the cases of one curve: they differ in their place on the axis
// alone.
type Series []*Case

// GroupSeries puts cases into series, in the order in which they come.
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

// Name says which curve it is.
func (s Series) Name() string { return s.Method() + ", " + s.Setting() }

// Method names what computes: the mechanism, its order and the form asked for.
func (s Series) Method() string {
	l := &s[0].Line
	if l.Order > 0 {
		return fmt.Sprintf("%s %d %s", l.Mechanism, l.Order, s[0].AskedForm)
	}
	return l.Mechanism + " " + s[0].AskedForm
}

// Setting names the widths, and heads, threads and direction where they are not the usual ones.
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

// ExtrapolatedPoints returns the positions of cases that were not measured, and their seconds
// at the speed of the last measured case; nothing without a measured case.
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

// Crossing compares a curve that looks at every pair of tokens with one that
// does not.
type Crossing struct {
	Pairs, Linear  Series
	Length         float64 // from here on Linear is faster; 0: see LinearIsFaster
	Seconds        float64 // of both there
	LinearIsFaster bool    // at every measured length; otherwise it is slower at the end
}

// FindCrossings returns the crossings of all curves that can be compared: of the
// same setting, and with two places at least that both were measured at. What
// chooses between two forms is not compared with one of them, nor does it stand
// for the direct form where that is in the list itself.
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
