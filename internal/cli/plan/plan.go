// Package plan implements the verb plan: operations, bytes and predicted times of a shape.
package plan

import (
	"github.com/farfield-ml/farfield/internal/cli/display"
	"github.com/farfield-ml/farfield/internal/cli/env"
	"github.com/farfield-ml/farfield/internal/cli/flags"
	"github.com/farfield-ml/farfield/internal/papercost"
)

// Command is the verb plan: it prints the cost of attention on this machine, and as published.
type Command struct {
	N         flags.Count `short:"n" default:"4096" placeholder:"N" help:"Queries of a sequence."`
	M         flags.Count `short:"m" placeholder:"M" help:"Keys of a sequence (N)."`
	D         flags.Count `short:"d" default:"64" placeholder:"D" help:"Width of queries and keys of a head."`
	Dv        flags.Count `placeholder:"DV" help:"Width of values (D)."`
	Heads     flags.Count `default:"1" placeholder:"H" help:"Query heads."`
	KVHeads   flags.Count `name:"kv-heads" placeholder:"H" help:"Key heads (the number of query heads)."`
	Batch     flags.Count `default:"1" placeholder:"B" help:"Sequences."`
	Causal    bool        `help:"Query i sees keys j ≤ i + (M-N)."`
	Mechanism string      `complete:"mechanisms" default:"fastmax" placeholder:"NAME" help:"Attention function; with --help its settings are listed."`
	flags.Settings
	Width flags.Count `placeholder:"C" help:"Also sweep over the number of heads that share this width."`

	Parameters     flags.Amount `placeholder:"P" help:"Also count the training of a model of P parameters."`
	Tokens         flags.Amount `placeholder:"T" help:"Training tokens, such as 300e9."`
	Layers         flags.Count  `placeholder:"L" help:"Layers with attention of the shape above, which is added."`
	EncoderDecoder bool         `help:"Count 3PT operations instead of 6PT."`

	Published bool   `help:"Also print the costs that FAST and TaylorShift publish for the shape; JSON has them always."`
	JSON      bool   `name:"json" help:"Print one JSON object."`
	Plot      string `placeholder:"FILE" help:"Also draw the crossovers over D, as .svg or .png."`
}

// Help returns the long help text with examples.
func (c *Command) Help() string {
	return "It counts the operations of the direct and the linear form, says which form is chosen, and predicts times from the peak speed of this machine, which it measures. It also names the length from which the mechanism is faster than softmax. " +
		"--plot draws, over D from 8 to 128, the N from which the linear form is chosen, and the N where counted operations cross. " +
		"The state is what a session holds; streams of attend also keep the residuals of its sums. " +
		"--encoder-decoder is for models in which each token meets half of the parameters." + flags.JoinExamples(
		"farfield plan --n 65536 --d 64 --heads 8 --causal",
		"farfield plan --mechanism taylorshift --n 1e6 --json",
		"farfield plan --plot crossover.svg",
		"farfield plan --parameters 174.6e9 --tokens 300e9 --n 2048 --d 128 --heads 96 --layers 96",
	)
}

// Run prints the plan of a call. It returns an error if the flags are invalid or the mechanism
// refuses the shape.
func (c *Command) Run(e *env.Env) error {
	var r *Report
	err := e.RunInterruptibly(func() (err error) {
		r, err = c.report()
		return err
	})
	if err != nil {
		return err
	}
	if c.Plot != "" {
		if err := c.plot(); err != nil {
			return err
		}
	}
	if c.JSON {
		return display.PrintJSON(e.Stdout, r)
	}
	return r.print(e.Stdout, c.Published)
}

// Report is the result of plan.
type Report struct {
	Machine   string    `json:"machine"`
	Mechanism string    `json:"mechanism"`
	Degree    int       `json:"order,omitempty"`
	Shape     planShape `json:"shape"`
	Features  int       `json:"features,omitempty"` // F, packed

	Forms          []formCost `json:"forms"`
	LinearRefusal  string     `json:"linear_refused,omitempty"`
	Form           string     `json:"form"` // chosen
	Chunk          int        `json:"chunk,omitempty"`
	Reason         string     `json:"why,omitempty"`
	Backward       string     `json:"backward_form"` // chosen
	BackwardReason string     `json:"backward_why,omitempty"`
	Switch         *switches  `json:"switch_n,omitempty"`
	State          *stateCost `json:"state,omitempty"`
	Softmax        *rival     `json:"softmax,omitempty"`

	TaylorShift papercost.TaylorShift `json:"taylorshift"` // one head
	Totals      taylorShiftTotals     `json:"taylorshift_totals"`
	FastCosts   *papercost.FastOrders `json:"fast,omitempty"`

	Width    int           `json:"width,omitempty"`
	Sweep    []headsCost   `json:"sweep,omitempty"`
	Training *trainingCost `json:"training,omitempty"`
}

// switches are lengths N = M from which on the linear form is the better one; 0
// where that is beyond a billion.
type switches struct {
	Forward  int `json:"forward"`  // it is chosen
	Backward int `json:"backward"` // likewise
	Counted  int `json:"counted"`  // it takes fewer operations, forward
}

// rival is softmax in place of the mechanism.
type rival struct {
	Seconds float64 `json:"forward_seconds"`
	From    int     `json:"faster_from_n"` // N = M from which the mechanism is faster forward; 0: none
}

// planShape holds the sizes of an attention.Shape that decide the cost.
type planShape struct {
	B      int  `json:"b"`
	H      int  `json:"h"`
	Hkv    int  `json:"hkv"`
	N      int  `json:"n"`
	M      int  `json:"m"`
	D      int  `json:"d"`
	Dv     int  `json:"dv"`
	Causal bool `json:"causal"`
}

// taylorShiftTotals are the sums of the parts.
type taylorShiftTotals struct {
	OpsDirect        float64 `json:"ops_dir"`
	OpsEfficient     float64 `json:"ops_eff"`
	EntriesDirect    float64 `json:"entries_dir"`
	EntriesEfficient float64 `json:"entries_eff"`
}

// formCost is the cost of one form on this machine, for all heads and sequences.
type formCost struct {
	Form            string         `json:"form"`
	Forward         float64        `json:"forward_flops"`
	Backward        float64        `json:"backward_flops"`
	Bytes           float64        `json:"worker_bytes"` // scratch and state of each worker
	ForwardSeconds  float64        `json:"forward_seconds"`
	BackwardSeconds float64        `json:"backward_seconds"`
	Bound           display.Number `json:"bound"` // of errors in float32, as attention.Plan.Bound; null: none
}

// stateCost is the state of a session beside a cache of keys and values, all heads
// of one sequence, in float32.
type stateCost struct {
	Bytes      float64 `json:"bytes"`           // with open chunk, window, padding and weights of features
	Sums       float64 `json:"sums_bytes"`      // F(Dv+1) numbers a key head
	CacheBytes float64 `json:"kv_token_bytes"`  // D+Dv numbers a key head and token
	BreakEven  float64 `json:"kv_break_even_n"` // tokens from which on the cache is larger
	Step       float64 `json:"token_flops"`     // 4F(Dv+1) a head: absorb and read
}

// headsCost is one row of the sweep over heads that share a width.
type headsCost struct {
	Heads    int     `json:"heads"`
	D        int     `json:"d"`
	Ops      float64 `json:"ops_eff"`
	Entries  float64 `json:"entries_eff"`
	FastTime float64 `json:"fast_time,omitempty"`
	Forward  float64 `json:"forward_flops"` // here, in the form chosen
	Form     string  `json:"form"`
	Seconds  float64 `json:"forward_seconds"`
}

// trainingCost is the cost of training a model.
type trainingCost struct {
	Parameters float64 `json:"parameters"`
	Tokens     float64 `json:"tokens"`
	Weights    float64 `json:"weights_flops"`
	PFDays     float64 `json:"weights_pf_days"`
	Attention  float64 `json:"attention_flops"`
	Hours      float64 `json:"hours"` // of both, on this machine
}
