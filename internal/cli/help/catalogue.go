package help

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/farfield-ml/farfield/internal/cli/flags"
	"github.com/farfield-ml/farfield/mechanism"
	"github.com/farfield-ml/farfield/nn"
)

// describeMechanism prints parameters and settings of a mechanism; without a name, the
// catalogue.
func describeMechanism(w io.Writer, name string) error {
	table := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	if name == "" {
		fmt.Fprintln(table, "\nMechanisms (--mechanism NAME --help tells more):")
		for _, name := range mechanism.Names() {
			row, err := mechanism.Lookup(name)
			if err != nil {
				return err
			}
			fmt.Fprintf(table, "  %s\t%s\n", name, row.Doc)
		}
		fmt.Fprintln(table, "\nMixers, which own their projections (farfield train --mechanism NAME):")
		for _, name := range nn.MixerNames() {
			row, _ := nn.LookupMixer(name)
			fmt.Fprintf(table, "  %s\t%s\n", name, row.Doc)
		}
		return table.Flush()
	}
	row, err := flags.LookupRow(name)
	if err != nil {
		return err
	}
	fmt.Fprintf(table, "\nMechanism %s: %s\n  source\t%s\n  traits\t%s\n", row.Name, row.Doc, row.Source, row.Traits)
	if row.HasOrder() {
		fmt.Fprintf(table, "  --order P\tdegree of the polynomial (default %d)\n", row.Order)
	}
	for _, s := range row.Settings {
		fmt.Fprintf(table, "  --set %s=VALUE\t%s (default %s)\n", s.Name, s.Doc, s.Default)
	}
	for _, p := range row.Params {
		fmt.Fprintf(table, "  parameter %s %s\t%s; its gradient is d_%s\n", p.Name, p.Shape, p.Doc, p.Name)
	}
	for _, p := range row.Constants {
		fmt.Fprintf(table, "  constant %s %s\t%s\n", p.Name, p.Shape, p.Doc)
	}
	return table.Flush()
}
