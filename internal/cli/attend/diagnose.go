package attend

import (
	"fmt"
	"io"
	"math"
	"slices"
	"text/tabwriter"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/cli/display"
)

// diagnosed is an attention.Diagnosis of a head as it is printed.
type diagnosed struct {
	Row               int            `json:"batch_row"`
	Head              int            `json:"head"`
	Queries           int64          `json:"queries"` // that see a key
	UnseenRows        int64          `json:"unseen_rows"`
	WeakRows          int64          `json:"weak_rows"`
	Entropy           display.Number `json:"entropy"` // nats
	MinEntropy        display.Number `json:"least_entropy"`
	MinEntropyAt      int            `json:"least_entropy_query"`
	Condition         display.Number `json:"condition"`
	MaxCondition      display.Number `json:"greatest_condition"`
	MaxConditionQuery int            `json:"greatest_condition_query"`
	MinDen            display.Number `json:"smallest_denominator"` // softmax: its logarithm
	MinDenQuery       int            `json:"smallest_denominator_query"`
	ExactShare        display.Number `json:"exact_share,omitempty"` // of mechanisms that choose pairs
	// Of codebooks, and of orders above 0.
	KeyDistance     display.Number `json:"key_distance,omitempty"`
	WildShare       display.Number `json:"wild_share,omitempty"`
	MaxWildShare    display.Number `json:"greatest_wild_share,omitempty"`
	MaxWildShareRow int            `json:"greatest_wild_share_query,omitempty"`
}

// diagnosis converts the result of Diagnose for heads heads to its printed form.
func diagnosis(list []attention.Diagnosis, heads int) []diagnosed {
	out := make([]diagnosed, len(list))
	for i, d := range list {
		out[i] = diagnosed{
			Row: i / heads, Head: i % heads, Queries: d.Rows, UnseenRows: d.UnseenCount, WeakRows: d.WeakCount,
			Entropy: display.Number(d.Entropy), MinEntropy: display.Number(d.MinEntropy), MinEntropyAt: d.MinEntropyAt,
			Condition: display.Number(d.Condition), MaxCondition: display.Number(d.MaxCondition), MaxConditionQuery: d.MaxConditionAt,
			MinDen: display.Number(d.MinDen), MinDenQuery: d.MinDenAt, ExactShare: display.Number(d.ExactShare),
			KeyDistance: display.Number(d.KeyDistance), WildShare: display.Number(d.WildShare), MaxWildShare: display.Number(d.MaxWildShare), MaxWildShareRow: d.MaxWildShareAt,
		}
	}
	return out
}

// printDiagnosis prints a line for each head.
func printDiagnosis(w io.Writer, list []diagnosed) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	chooses := slices.ContainsFunc(list, func(d diagnosed) bool { return d.ExactShare > 0 })
	hasCells := slices.ContainsFunc(list, func(d diagnosed) bool { return d.KeyDistance > 0 })
	isWild := slices.ContainsFunc(list, func(d diagnosed) bool { return d.WildShare > 0 })
	fmt.Fprint(t, "row\thead\tqueries\tunseen\tdoubtful\tkeys spread over\tleast\tat\tcondition\tgreatest\tat\tsmallest denominator\tat\t")
	if chooses {
		fmt.Fprint(t, "exact pairs\t")
	}
	if hasCells {
		fmt.Fprint(t, "keys from centres\t")
	}
	if isWild {
		fmt.Fprint(t, "wild weights\tgreatest\tat\t")
	}
	fmt.Fprintln(t)
	for _, d := range list {
		fmt.Fprintf(t, "%d\t%d\t%d\t%d\t%d\t%.4g\t%.4g\t%d\t%.4g\t%.4g\t%d\t%.4g\t%d\t", d.Row, d.Head, d.Queries, d.UnseenRows, d.WeakRows,
			math.Exp(float64(d.Entropy)), math.Exp(float64(d.MinEntropy)), d.MinEntropyAt,
			float64(d.Condition), float64(d.MaxCondition), d.MaxConditionQuery, float64(d.MinDen), d.MinDenQuery)
		if chooses {
			fmt.Fprintf(t, "%.1f %%\t", 100*float64(d.ExactShare))
		}
		if hasCells {
			fmt.Fprintf(t, "%.4g\t", float64(d.KeyDistance))
		}
		if isWild {
			fmt.Fprintf(t, "%.1f %%\t%.1f %%\t%d\t", 100*float64(d.WildShare), 100*float64(d.MaxWildShare), d.MaxWildShareRow)
		}
		fmt.Fprintln(t)
	}
	return t.Flush()
}
