package mechanism

import (
	"math"
	"math/big"
	"strings"
	"sync"
)

// signTest decides whether a polynomial is negative anywhere in an interval. It is exact: the
// polynomial changes its sign only at roots of odd multiplicity, which Sturm's theorem counts.
type signTest struct {
	f     poly
	chain []poly // Sturm's, of the factors with odd multiplicity; nil: there are none
}

// newSignTest returns the test of Σ c[l]·x^l.
func newSignTest(c []*big.Rat) signTest {
	s := signTest{f: trimZeros(c)}
	if odd := oddFactors(s.f); len(odd) > 1 {
		s.chain = sturmChain(odd)
	}
	return s
}

// isNonNegative reports whether the polynomial is at least 0 for all |x| ≤ limit, which may
// be +Inf.
func (s signTest) isNonNegative(limit float64) bool {
	f := s.f
	if len(f) == 0 {
		return true
	}
	if s.chain != nil && countRoots(s.chain, limit) > 0 {
		return false
	}
	// The sign is the same everywhere but at roots, and there are fewer roots
	// than points.
	for i := range len(f) + 1 {
		x := new(big.Rat).SetFrac64(int64(i), int64(len(f)+1))
		if !math.IsInf(limit, 1) {
			x.Mul(x, new(big.Rat).SetFloat64(limit))
		}
		if s := evalExact(f, x).Sign(); s != 0 {
			return s > 0
		}
	}
	return evalExact(f, new(big.Rat)).Sign() >= 0 // limit 0
}

// poly is Σ p[l]·x^l. The last element is not 0; the zero polynomial is empty.
type poly []*big.Rat

// trimZeros removes zero coefficients of the highest degrees.
func trimZeros(p []*big.Rat) poly {
	n := len(p)
	for n > 0 && p[n-1].Sign() == 0 {
		n--
	}
	return p[:n]
}

// evalExact returns p(x).
func evalExact(p poly, x *big.Rat) *big.Rat {
	y := new(big.Rat)
	for l := len(p) - 1; l >= 0; l-- {
		y.Add(y.Mul(y, x), p[l])
	}
	return y
}

// derivePoly returns the derivative of p.
func derivePoly(p poly) poly {
	var d []*big.Rat
	for l := 1; l < len(p); l++ {
		d = append(d, new(big.Rat).Mul(p[l], new(big.Rat).SetInt64(int64(l))))
	}
	return d
}

// dividePoly returns quotient and remainder of a over b, which must not be zero.
func dividePoly(a, b poly) (quotient, remainder poly) {
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
	return trimZeros(q), trimZeros(rest)
}

// scaleToUnit returns p over the magnitude of its highest coefficient. Signs stay, and
// numbers grow less.
func scaleToUnit(p poly) poly {
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

// commonDivisor returns the greatest common divisor of a and b.
func commonDivisor(a, b poly) poly {
	for len(b) > 0 {
		_, rest := dividePoly(a, b)
		a, b = b, scaleToUnit(rest)
	}
	return scaleToUnit(a)
}

// oddFactors returns the product of the factors of f with odd multiplicity, each once
// (Yun 1976, square-free decomposition).
func oddFactors(f poly) poly {
	df := derivePoly(f)
	if len(df) == 0 {
		return poly{big.NewRat(1, 1)}
	}
	a := commonDivisor(f, df)
	b, _ := dividePoly(f, a)
	c, _ := dividePoly(df, a)
	product := poly{big.NewRat(1, 1)}
	for i := 1; len(b) > 1; i++ {
		d := subtractPoly(c, derivePoly(b))
		a = commonDivisor(b, d)
		if i%2 == 1 {
			product = multiplyPoly(product, a)
		}
		b, _ = dividePoly(b, a)
		c, _ = dividePoly(d, a)
	}
	return product
}

// subtractPoly returns a - b.
func subtractPoly(a, b poly) poly {
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
	return trimZeros(d)
}

// multiplyPoly returns a·b.
func multiplyPoly(a, b poly) poly {
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

// sturmChain returns Sturm's chain of f, which must have no multiple roots.
func sturmChain(f poly) []poly {
	chain := []poly{f, derivePoly(f)}
	for len(chain[len(chain)-1]) > 1 {
		_, rest := dividePoly(chain[len(chain)-2], chain[len(chain)-1])
		if len(rest) == 0 {
			break
		}
		negative := scaleToUnit(rest)
		for _, x := range negative {
			x.Neg(x)
		}
		chain = append(chain, negative)
	}
	return chain
}

// countRoots returns the number of roots with |x| < limit of the first polynomial of chain,
// by Sturm's theorem.
func countRoots(chain []poly, limit float64) int {
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
				s = evalExact(p, x).Sign()
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
	n := changes(-1) - changes(1) // roots with -limit < x ≤ limit
	if !math.IsInf(limit, 1) && evalExact(chain[0], new(big.Rat).SetFloat64(limit)).Sign() == 0 {
		n--
	}
	return n
}

// signCache holds the signs of polynomials, since all layers of a model have the same one.
type signCache struct {
	mu    sync.Mutex
	signs map[signKey]polynomialSigns
}

// signKey is the exact coefficients and the bound of the scores.
type signKey struct {
	coef  string
	limit float64
}

// polynomialSigns reports on which scores a polynomial is never negative.
type polynomialSigns struct {
	isPositive    bool // for numbers up to the limit
	isNonNegative bool // for all numbers
}

// maxCachedSigns bounds the number of polynomials in a signCache.
const maxCachedSigns = 64

var knownSigns signCache

// lookup returns the signs of Σ c[l]·x^l for |x| ≤ limit and for all x.
func (s *signCache) lookup(c []*big.Rat, limit float64) polynomialSigns {
	var coef strings.Builder
	for _, x := range c {
		coef.WriteString(x.RatString())
		coef.WriteByte(',')
	}
	key := signKey{coef.String(), limit}
	s.mu.Lock()
	signs, found := s.signs[key]
	s.mu.Unlock()
	if found {
		return signs
	}
	test := newSignTest(c)
	signs.isNonNegative = test.isNonNegative(math.Inf(1))
	signs.isPositive = signs.isNonNegative || test.isNonNegative(limit)
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.signs) >= maxCachedSigns || s.signs == nil {
		s.signs = make(map[signKey]polynomialSigns)
	}
	s.signs[key] = signs
	return signs
}
