package bench

// Line is one line of a benchmark: what was measured, and the results. Fields that a suite does not
// use are zero.
type Line struct {
	Impl      string `json:"impl"`
	Mechanism string `json:"mechanism"`
	Order     int    `json:"order"`
	Form      string `json:"form"` // the form that ran
	Causal    bool   `json:"causal"`
	Direction string `json:"direction"`
	N         int    `json:"n"`
	M         int    `json:"m"`
	D         int    `json:"d"`
	Dv        int    `json:"dv"`
	Heads     int    `json:"heads"`
	Threads   int    `json:"threads"`
	ISA       string `json:"isa"`

	Ms     float64 `json:"ms"`               // median of the rounds, in milliseconds
	Spread float64 `json:"spread"`           // distance of the quartiles of the rounds over the median
	GFLOPS float64 `json:"gflops,omitempty"` // useful operations a second, in 1e9; 0: not counted
	Peak   float64 `json:"peak_gflops"`
	Share  float64 `json:"share,omitempty"` // GFLOPS/Peak
	// ExtraBytes is the measured memory beyond inputs and outputs: the most scratch that one
	// worker holds, what a call allocates, and what is kept between calls (what forward keeps for
	// backward, the state of decode, the activations of train).
	ExtraBytes int64 `json:"extra_bytes"`

	BestMs  float64 `json:"best_ms"` // milliseconds of the fastest round
	Rounds  int     `json:"rounds"`
	Machine string  `json:"machine"`
	Joules  float64 `json:"joules,omitempty"` // energy of the processor for a call; 0: the system does not report it
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

// Case is a line that can be measured. Its JSON is the line, then the requested form and the
// counted operations.
type Case struct {
	Line
	AskedForm string  `json:"asked"`              // the requested form
	FLOPs     float64 `json:"flops,omitempty"`    // useful operations of a call, in the suite zoo those that the mechanism plans; 0: not counted
	Guess     float64 `json:"guess_ms,omitempty"` // estimated milliseconds of a call that was not made because it would take too long
	Grows     bool    `json:"-"`                  // the time grows linearly with the tokens, since no pairs of tokens are computed
	X         float64 `json:"-"`                  // position on the axis of a plot
	Need      float64 `json:"-"`                  // estimated bytes for a run: inputs, outputs, and the scratch of all workers
	planned   float64 // operations that the mechanism plans for the output
	open      func() (*work, error)
}

// work is a case with its data in place.
type work struct {
	prepare func() error // before each round, untimed; nil: nothing to do
	call    func() error
	calls   int   // that call counts for
	held    int64 // bytes kept between calls
}
