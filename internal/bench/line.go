package bench

// Line is one line of a benchmark: a case and its measurements. Fields that a suite does
// not use are zero.
type Line struct {
	Impl      string `json:"impl"`
	Mechanism string `json:"mechanism"`
	Order     int    `json:"order"`
	Form      string `json:"form"` // that ran
	Causal    bool   `json:"causal"`
	Direction string `json:"direction"`
	N         int    `json:"n"`
	M         int    `json:"m"`
	D         int    `json:"d"`
	Dv        int    `json:"dv"`
	Heads     int    `json:"heads"`
	Threads   int    `json:"threads"`
	ISA       string `json:"isa"`

	Ms     float64 `json:"ms"`               // median
	Spread float64 `json:"spread"`           // distance of the quartiles over the median
	GFLOPS float64 `json:"gflops,omitempty"` // useful operations, 1e9 a second; 0: not counted
	Peak   float64 `json:"peak_gflops"`
	Share  float64 `json:"share,omitempty"` // GFLOPS/Peak
	// ExtraBytes is the memory beyond inputs and outputs, measured: the scratch
	// that one worker holds at most, what a call allocates, and what is kept
	// between calls (forward's notes for backward, the state of decode, the
	// activations of train).
	ExtraBytes int64 `json:"extra_bytes"`

	BestMs  float64 `json:"best_ms"` // of the fastest round
	Rounds  int     `json:"rounds"`
	Machine string  `json:"machine"`
	Joules  float64 `json:"joules,omitempty"` // of the processor, a call; 0: the system does not tell
}

// impl is the implementation in lines of this program.
const impl = "farfield"

// Directions that a Line may have.
const (
	forward  = "forward"
	backward = "backward" // alone, from the values that forward saved
	both     = "both"     // forward, then backward
	update   = "update"   // both, and the optimizer's step
)

// Case is a line that is to be measured. As JSON it is the line, then the requested
// form and the counted operations.
type Case struct {
	Line
	AskedForm string  `json:"asked"`              // the requested form
	FLOPs     float64 `json:"flops,omitempty"`    // useful operations of a call, planned ones in the suite zoo; 0: not counted
	Guess     float64 `json:"guess_ms,omitempty"` // milliseconds of a call that was not made, since it would take too long
	Grows     bool    `json:"-"`                  // linearly with the tokens: no pair of them is looked at
	X         float64 `json:"-"`                  // place on the axis of a plot
	Need      float64 `json:"-"`                  // bytes to run it, estimated: inputs, outputs, scratch of all workers
	planned   float64 // operations of the output that the mechanism plans
	open      func() (*work, error)
}

// work is a case with its data in place.
type work struct {
	prepare func() error // before each round, untimed; nil: nothing to do
	call    func() error
	calls   int   // that call counts for
	held    int64 // bytes kept between calls
}
