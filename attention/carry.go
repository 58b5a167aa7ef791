package attention

// Carry is how a state adds the sums of a chunk to those of the chunks before.
// The sums of a chunk are taken from zero in the element type either way.
type Carry int

const (
	// Rounded adds in the element type. Each chunk is a rounding of the whole
	// sum, and those of a token that repeats itself all go one way.
	Rounded Carry = iota
	// Compensated keeps beside each sum what its roundings left out, twice the
	// memory, so that a stream of any length has the error of a chunk. What is
	// read is the rounding of the whole: reading costs no more.
	Compensated
)

func (c Carry) String() string {
	if c == Compensated {
		return "compensated"
	}
	return "rounded"
}
