package attention

// What the calibration in package attention_test needs of this one.
type (
	Speed      = speed
	SpeedTable = speedTable
	Tally      = tally
)

var (
	SpeedTables = speedTables
	SpeedWidths = speedWidths[:]
)

// Kinds is the number of kinds of mechanisms.
const Kinds = kinds

// At returns the speed of the table at a width.
func (x *SpeedTable) At(kind, d int, causal, back bool) Speed { return x.at(kind, d, causal, back) }

// TallyOf counts the work of a key head of s where Forward runs in the linear
// form, whatever Backward does.
func TallyOf(m Mechanism[float32], s Shape, back bool) Tally {
	c := &Call[float32]{Causal: s.Causal, Chunk: s.Chunk, Form: Linear}
	c.Q.H, c.Q.D, c.K.H, c.V.D = s.H, s.D, s.Hkv, s.Dv
	return m.(*engine[float32]).tally(c, &Sequence{N: s.N, M: s.M, Offset: s.M - s.N}, back)
}

// Costs are the costs of both forms at a speed.
func (x Tally) Costs(s Speed) (direct, linear float64) { return x.direct(s), x.linear(s) }

// Parts are the numbers of tokens and operations.
func (x Tally) Parts() (tokens, pairs, open, moments float64) {
	return x.tokens, x.pairs, x.open, x.moments
}
