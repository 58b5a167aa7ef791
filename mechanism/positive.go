package mechanism

import (
	"math"
	"math/big"
)

// nonNegative reports whether Σ c[l]·x^l ≥ 0 wherever |x| ≤ limit, which may be
// +Inf. It is exact: the polynomial changes its sign where it has a root of odd
// multiplicity, and Sturm's theorem counts those.
func nonNegative(c []*big.Rat, limit float64) bool {
	f := trim(c)
	if len(f) == 0 {
		return true
	}
	odd := oddPart(f)
	if len(odd) > 1 && roots(odd, limit) > 0 {
		return false
	}
	// The sign is the same everywhere but at roots, of which there are fewer
	// than points tried.
	for i := range len(f) + 1 {
		x := new(big.Rat).SetFrac64(int64(i), int64(len(f)+1))
		if !math.IsInf(limit, 1) {
			x.Mul(x, new(big.Rat).SetFloat64(limit))
		}
		if s := at(f, x).Sign(); s != 0 {
			return s > 0
		}
	}
	return at(f, new(big.Rat)).Sign() >= 0 // limit 0
}

// A poly is Σ p[l]·x^l with p's last element not 0; the zero polynomial is
// empty.
type poly []*big.Rat

func trim(p []*big.Rat) poly {
	n := len(p)
	for n > 0 && p[n-1].Sign() == 0 {
		n--
	}
	return p[:n]
}

func at(p poly, x *big.Rat) *big.Rat {
	y := new(big.Rat)
	for l := len(p) - 1; l >= 0; l-- {
		y.Add(y.Mul(y, x), p[l])
	}
	return y
}

func derivative(p poly) poly {
	var d []*big.Rat
	for l := 1; l < len(p); l++ {
		d = append(d, new(big.Rat).Mul(p[l], new(big.Rat).SetInt64(int64(l))))
	}
	return d
}

// divide returns quotient and remainder of a over b, which is not zero.
func divide(a, b poly) (quotient, remainder poly) {
	rest := make([]*big.Rat, len(a))
	for l := range a {
		rest[l] = new(big.Rat).Set(a[l])
	}
	q := make([]*big.Rat, max(len(a)-len(b)+1, 0))
	for l := len(q) - 1; l >= 0; l-- {
		q[l] = new(big.Rat).Quo(rest[l+len(b)-1], b[len(b)-1])
		for i := range b {
			rest[l+i].Sub(rest[l+i], new(big.Rat).Mul(q[l], b[i]))
		}
	}
	return trim(q), trim(rest)
}

// unit returns p over the size of its highest coefficient: the same signs, and
// numbers that grow less.
func unit(p poly) poly {
	if len(p) == 0 {
		return p
	}
	size := new(big.Rat).Abs(p[len(p)-1])
	u := make(poly, len(p))
	for l := range p {
		u[l] = new(big.Rat).Quo(p[l], size)
	}
	return u
}

// divisor returns the greatest common divisor of a and b.
func divisor(a, b poly) poly {
	for len(b) > 0 {
		_, rest := divide(a, b)
		a, b = b, unit(rest)
	}
	return unit(a)
}

// oddPart returns the product of the factors of f that occur an odd number of
// times, each once (Yun 1976, square-free decomposition).
func oddPart(f poly) poly {
	df := derivative(f)
	if len(df) == 0 {
		return poly{big.NewRat(1, 1)}
	}
	a := divisor(f, df)
	b, _ := divide(f, a)
	c, _ := divide(df, a)
	product := poly{big.NewRat(1, 1)}
	for i := 1; len(b) > 1; i++ {
		d := minus(c, derivative(b))
		a = divisor(b, d)
		if i%2 == 1 {
			product = times(product, a)
		}
		b, _ = divide(b, a)
		c, _ = divide(d, a)
	}
	return product
}

func minus(a, b poly) poly {
	d := make([]*big.Rat, max(len(a), len(b)))
	for l := range d {
		d[l] = new(big.Rat)
		if l < len(a) {
			d[l].Set(a[l])
		}
		if l < len(b) {
			d[l].Sub(d[l], b[l])
		}
	}
	return trim(d)
}

func times(a, b poly) poly {
	p := make(poly, len(a)+len(b)-1)
	for l := range p {
		p[l] = new(big.Rat)
	}
	for i := range a {
		for j := range b {
			p[i+j].Add(p[i+j], new(big.Rat).Mul(a[i], b[j]))
		}
	}
	return p
}

// roots counts the roots of f, which has no multiple ones, with |x| < limit, by
// Sturm's theorem.
func roots(f poly, limit float64) int {
	chain := []poly{f, derivative(f)}
	for len(chain[len(chain)-1]) > 1 {
		_, rest := divide(chain[len(chain)-2], chain[len(chain)-1])
		if len(rest) == 0 {
			break
		}
		negative := unit(rest)
		for _, x := range negative {
			x.Neg(x)
		}
		chain = append(chain, negative)
	}
	// changes counts the changes of sign along the chain at ±limit.
	changes := func(sign int) int {
		n, last := 0, 0
		for _, p := range chain {
			var s int
			if math.IsInf(limit, 1) {
				s = p[len(p)-1].Sign()
				if sign < 0 && len(p)%2 == 0 {
					s = -s
				}
			} else {
				x := new(big.Rat).SetFloat64(float64(sign) * limit)
				s = at(p, x).Sign()
			}
			if s != 0 {
				if last*s < 0 {
					n++
				}
				last = s
			}
		}
		return n
	}
	n := changes(-1) - changes(1) // those with -limit < x ≤ limit
	if !math.IsInf(limit, 1) && at(f, new(big.Rat).SetFloat64(limit)).Sign() == 0 {
		n--
	}
	return n
}
