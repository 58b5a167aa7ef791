package contract

// Carry is the way in which a state adds the sums of a chunk to the sums of earlier
// chunks. In both ways the sums of a chunk begin at zero in the element type.
type Carry int

const (
	// Rounded adds in the element type. Each chunk rounds the whole sum. The roundings
	// of a repeated token all go in one direction.
	Rounded Carry = iota
	// Compensated keeps beside each sum what its roundings left out, twice the
	// memory, so that a stream of any length has the error of a chunk. What is
	// read is the rounding of the whole: reading costs no more.
	Compensated
)

// String returns the name of the way.
func (c Carry) String() string {
	if c == Compensated {
		return "compensated"
	}
	return "rounded"
}
