package mechanism

import (
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/mechanism/internal/entry"
)

var polynomial = Row{
	Name:   "polynomial",
	Doc:    "Σ_l c_l·s^l of any coefficients, normalisation and scale: Based, power attention and others",
	Source: "the family of FAST, arXiv 2402.07901, eq. 7-12",
	Traits: "positive weights where the polynomial is, on the scores that the normalisation allows; direct and linear forms; state of fixed size, except for norms over all tokens, which are not causal",
	Linear: true,
	Settings: []Setting{
		{"norm", "none", "normalisation of rows: " + strings.Join(normNames(), ", ") + "; from max on it is taken over all tokens, and refused with --causal"},
		{"scale", "1/sqrt(D)", "factor of the scores: a number or 1/sqrt(D)"},
		{"coef", "1,1,0.5", "c_0,c_1,... of the polynomial: numbers or fractions such as 1/6, the last not 0"},
		temperatureSetting,
		{"eps", "0", "added to the sum of the weights"},
		outputNormSetting, windowSetting, joinSetting, gammaSetting,
	},
	Params: []Param{
		optionalTemperature, logGamma,
	},
	build: specBuilder(polynomialSpec),
}

func polynomialSpec(r *reader) (s attention.Spec, err error) {
	s.Name = r.row.Name
	if s.Norm, err = r.norm(); err != nil {
		return s, err
	}
	if s.Scale, err = r.Positive("scale", "1/sqrt(D)"); err != nil {
		return s, err
	}
	exact, err := r.coefficients()
	if err != nil {
		return s, err
	}
	if s.Tau, err = newOptionalTemperatures(r); err != nil {
		return s, err
	}
	if s.Eps, err = r.Positive("eps", "0"); err != nil {
		return s, err
	}
	if s.OutputNorm, err = r.Bool("output_norm"); err != nil {
		return s, err
	}
	texts := make([]string, len(exact))
	for l, c := range exact {
		x, _ := c.Float64()
		s.Coef = append(s.Coef, x)
		texts[l] = strconv.FormatFloat(x, 'g', -1, 64)
	}
	s.Setting = fmt.Sprintf("polynomial norm=%v scale=%s coef=%s eps=%s output_norm=%t",
		s.Norm, entry.FormatScale(s.Scale), strings.Join(texts, ","), strconv.FormatFloat(s.Eps, 'g', -1, 64), s.OutputNorm)
	signs := knownSigns.lookup(exact, scoreBound(&s, r.o.Width))
	s.Positive, s.NonNegative = signs.isPositive, signs.isNonNegative
	err = setWindow(r, &s)
	return s, err
}

// scoreBound returns the largest |score| of rows of width d, +Inf if it is not known. A
// learned factor may be of any size.
func scoreBound(s *attention.Spec, d int) float64 {
	if s.Tau != nil || s.Norm == attention.Standard && d == 0 {
		return math.Inf(1)
	}
	d = max(d, 1)
	scale := s.Scale
	if scale == 0 {
		scale = 1 / math.Sqrt(float64(d))
	}
	l := s.Norm.MaxLen(d)
	return scale * l * l
}

// normNames returns the values of the setting norm.
func normNames() []string {
	var names []string
	for _, n := range attention.Norms() {
		names = append(names, n.String())
	}
	return names
}

// norm returns the normalisation of the setting norm.
func (r *reader) norm() (attention.Norm, error) {
	for _, n := range attention.Norms() {
		if n.String() == r.Text("norm") {
			return n, nil
		}
	}
	return 0, r.Refuse("norm", "one of "+strings.Join(normNames(), ", "))
}

// maxCoefBits bounds the length of the common denominator of n coefficients, times n. The
// time of newSignTest grows with both.
const maxCoefBits = 9216

// coefficients returns the exact numbers of the setting coef.
func (r *reader) coefficients() ([]*big.Rat, error) {
	const allowed = "2 to 34 numbers or fractions, none beyond 1e30, the last not below 1e-30"
	texts := strings.Split(r.Text("coef"), ",")
	if len(texts) < 2 || len(texts) > maxOrder+1 {
		return nil, r.Refuse("coef", allowed)
	}
	list := make([]*big.Rat, len(texts))
	for l, text := range texts {
		above, below, fraction := strings.Cut(strings.TrimSpace(text), "/")
		list[l] = parseDecimal(above)
		if fraction && list[l] != nil {
			d := parseDecimal(below)
			if d == nil || d.Sign() == 0 {
				return nil, r.Refuse("coef", allowed)
			}
			list[l].Quo(list[l], d)
		}
		if list[l] == nil {
			return nil, r.Refuse("coef", allowed)
		}
		if x, _ := list[l].Float64(); math.Abs(x) > 1e30 {
			return nil, r.Refuse("coef", allowed)
		}
	}
	if x, _ := list[len(list)-1].Float64(); math.Abs(x) < 1e-30 {
		return nil, r.Refuse("coef", allowed)
	}
	common := big.NewInt(1)
	for _, c := range list {
		d := c.Denom()
		common.Mul(common, new(big.Int).Quo(d, new(big.Int).GCD(nil, nil, common, d)))
	}
	if limit := maxCoefBits / len(list); common.BitLen() > limit {
		return nil, r.Refuse("coef", fmt.Sprintf("%s; %d of them need a common denominator of at most %d bits", allowed, len(list), limit))
	}
	return list, nil
}

// parseDecimal returns the number that text represents. It returns nil if text is no
// number, or is too long or too far from 1 for exact arithmetic.
func parseDecimal(text string) *big.Rat {
	x, err := strconv.ParseFloat(text, 64)
	if err != nil || len(text) > 64 || math.Abs(x) > 1e60 || x != 0 && math.Abs(x) < 1e-60 {
		return nil
	}
	exact, ok := new(big.Rat).SetString(text)
	if !ok {
		return nil
	}
	return exact
}
