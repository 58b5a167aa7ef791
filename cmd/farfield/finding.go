package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// finding is what is known of something: facts in their order. As JSON it is an object
// that begins with its kind.
type finding struct {
	kind  string
	facts []fact
}

// fact is a name, in JSON in lower case with _ between its words, and a value. A person reads the
// text, or the value where there is none.
type fact struct {
	name  string
	value any
	text  string
}

func (f *finding) add(name string, value any) {
	f.facts = append(f.facts, fact{name: name, value: value})
}

func (f *finding) say(name string, value any, format string, args ...any) {
	f.facts = append(f.facts, fact{name, value, escaped(fmt.Sprintf(format, args...))})
}

// rows are a table: in JSON a list of objects.
type rows struct {
	head []string
	rows [][]any
}

func (r *rows) add(cells ...any) { r.rows = append(r.rows, cells) }

func (r *rows) MarshalJSON() ([]byte, error) {
	list := []json.RawMessage{}
	for _, cells := range r.rows {
		f := finding{}
		for i, cell := range cells {
			f.add(r.head[i], cell)
		}
		object, err := f.MarshalJSON()
		if err != nil {
			return nil, err
		}
		list = append(list, object)
	}
	return json.Marshal(list)
}

// MarshalJSON returns an object of the facts in their order.
func (f *finding) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	facts := f.facts
	if f.kind != "" {
		facts = append([]fact{{name: "kind", value: f.kind}}, facts...)
	}
	for i, x := range facts {
		value, err := json.Marshal(x.value)
		if err != nil {
			return nil, err
		}
		before := ","
		if i == 0 {
			before = "{"
		}
		key, err := json.Marshal(strings.ToLower(strings.ReplaceAll(x.name, " ", "_")))
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&b, "%s%s:%s", before, key, value)
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// print writes the facts, a line each, and tables behind an empty line; in front of
// them the kind of what somebody asked for without saying what it is.
func (f *finding) print(out io.Writer, kind bool) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	if kind {
		fmt.Fprintf(w, "kind\t%s\n", f.kind)
	}
	for _, x := range f.facts {
		table, isTable := x.value.(*rows)
		switch {
		case x.text != "":
			fmt.Fprintf(w, "%s\t%s\n", x.name, x.text)
		case isTable:
			fmt.Fprintf(w, "\n%s\n", strings.Join(table.head, "\t"))
			for _, cells := range table.rows {
				for i, cell := range cells {
					if i > 0 {
						fmt.Fprint(w, "\t")
					}
					fmt.Fprint(w, escaped(fmt.Sprint(cell)))
				}
				fmt.Fprintln(w)
			}
		default:
			fmt.Fprintf(w, "%s\t%s\n", x.name, escaped(fmt.Sprint(x.value)))
		}
	}
	return w.Flush()
}
