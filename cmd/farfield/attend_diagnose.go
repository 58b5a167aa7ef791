package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"text/tabwriter"

	"github.com/farfield-ml/farfield/attention"
)

// diagnosed is an attention.Diagnosis of a head as it is printed.
type diagnosed struct {
	Row               int    `json:"batch_row"`
	Head              int    `json:"head"`
	Queries           int64  `json:"queries"` // that see a key
	Unseen            int64  `json:"unseen_rows"`
	Weak              int64  `json:"weak_rows"`
	Entropy           number `json:"entropy"` // nats
	MinEntropy        number `json:"least_entropy"`
	MinEntropyAt      int    `json:"least_entropy_query"`
	Condition         number `json:"condition"`
	MaxCondition      number `json:"greatest_condition"`
	MaxConditionQuery int    `json:"greatest_condition_query"`
	MinDen            number `json:"smallest_denominator"` // softmax: its logarithm
	MinDenQuery       int    `json:"smallest_denominator_query"`
}

// number is null in JSON where it is not finite.
type number float64

func (x number) MarshalJSON() ([]byte, error) {
	if math.IsInf(float64(x), 0) || math.IsNaN(float64(x)) {
		return []byte("null"), nil
	}
	return json.Marshal(float64(x))
}

// diagnosis turns what Diagnose returned for heads heads into what is printed.
func diagnosis(list []attention.Diagnosis, heads int) []diagnosed {
	out := make([]diagnosed, len(list))
	for i, d := range list {
		out[i] = diagnosed{
			Row: i / heads, Head: i % heads, Queries: d.Rows, Unseen: d.Unseen, Weak: d.Weak,
			Entropy: number(d.Entropy), MinEntropy: number(d.MinEntropy), MinEntropyAt: d.MinEntropyAt,
			Condition: number(d.Condition), MaxCondition: number(d.MaxCondition), MaxConditionQuery: d.MaxConditionAt,
			MinDen: number(d.MinDen), MinDenQuery: d.MinDenAt,
		}
	}
	return out
}

// printDiagnosis prints a line for each head.
func printDiagnosis(w io.Writer, list []diagnosed) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "row\thead\tqueries\tunseen\tdoubtful\tkeys spread over\tleast\tat\tcondition\tgreatest\tat\tsmallest denominator\tat\t")
	for _, d := range list {
		fmt.Fprintf(t, "%d\t%d\t%d\t%d\t%d\t%.4g\t%.4g\t%d\t%.4g\t%.4g\t%d\t%.4g\t%d\t\n", d.Row, d.Head, d.Queries, d.Unseen, d.Weak,
			math.Exp(float64(d.Entropy)), math.Exp(float64(d.MinEntropy)), d.MinEntropyAt,
			float64(d.Condition), float64(d.MaxCondition), d.MaxConditionQuery, float64(d.MinDen), d.MinDenQuery)
	}
	return t.Flush()
}
