package display

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/farfield-ml/farfield/internal/atomicfile"
)

// Finding is a list of facts about a subject, in order. As JSON it is an object that
// begins with its kind.
type Finding struct {
	Kind  string
	facts []fact
}

// fact is a name, in JSON in lower case with _ between its words, and a value. A person reads the
// text, or the value where there is none.
type fact struct {
	name  string
	value any
	text  string
}

// Add adds a fact that is printed as its value.
func (f *Finding) Add(name string, value any) {
	f.facts = append(f.facts, fact{name: name, value: value})
}

// AddText adds a fact that is printed as the formatted text, escaped. JSON has value instead, and
// omits nil.
func (f *Finding) AddText(name string, value any, format string, args ...any) {
	f.facts = append(f.facts, fact{name, value, Escape(fmt.Sprintf(format, args...))})
}

// AddLines adds a fact with a text of the program's own, which keeps its line breaks.
func (f *Finding) AddLines(name string, value any, text string) {
	f.facts = append(f.facts, fact{name, value, text})
}

// Table is a table of a Finding: in JSON a list of objects.
type Table struct {
	Columns []string
	rows    [][]any
}

// AddRow adds a row with one cell for each column.
func (r *Table) AddRow(cells ...any) { r.rows = append(r.rows, cells) }

// MarshalJSON returns a list with an object for each row. It returns an error if a cell
// has no JSON.
func (r *Table) MarshalJSON() ([]byte, error) {
	list := []json.RawMessage{}
	for _, cells := range r.rows {
		f := Finding{}
		for i, cell := range cells {
			f.Add(r.Columns[i], cell)
		}
		object, err := f.MarshalJSON()
		if err != nil {
			return nil, err
		}
		list = append(list, object)
	}
	return atomicfile.MarshalJSON(list)
}

// MarshalJSON returns an object of the facts in their order. It returns an error if a
// value has no JSON.
func (f *Finding) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	facts := f.facts
	if f.Kind != "" {
		facts = append([]fact{{name: "kind", value: f.Kind}}, facts...)
	}
	b.WriteByte('{')
	for _, x := range facts {
		if x.value == nil {
			continue
		}
		value, err := atomicfile.MarshalJSON(x.value)
		if err != nil {
			return nil, err
		}
		if b.Len() > 1 {
			b.WriteByte(',')
		}
		key, err := atomicfile.MarshalJSON(strings.ToLower(strings.ReplaceAll(x.name, " ", "_")))
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&b, "%s:%s", key, value)
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// Print writes one line for each fact, and tables after an empty line. If kind is set,
// the first line is the kind. It returns the error of out.
func (f *Finding) Print(out io.Writer, kind bool) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	if kind {
		fmt.Fprintf(w, "kind\t%s\n", f.Kind)
	}
	for _, x := range f.facts {
		table, isTable := x.value.(*Table)
		switch {
		case x.text != "":
			fmt.Fprintf(w, "%s\t%s\n", x.name, x.text)
		case isTable:
			fmt.Fprintf(w, "\n%s\n", strings.Join(table.Columns, "\t"))
			for _, cells := range table.rows {
				for i, cell := range cells {
					if i > 0 {
						fmt.Fprint(w, "\t")
					}
					fmt.Fprint(w, Escape(fmt.Sprint(cell)))
				}
				fmt.Fprintln(w)
			}
		default:
			fmt.Fprintf(w, "%s\t%s\n", x.name, Escape(fmt.Sprint(x.value)))
		}
	}
	return w.Flush()
}
