// Package data implements the verb data: data sets, listed, fetched, generated and verified.
package data

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/farfield-ml/farfield/internal/cli/display"
	"github.com/farfield-ml/farfield/internal/cli/env"
	"github.com/farfield-ml/farfield/internal/cli/flags"
	"github.com/farfield-ml/farfield/internal/cli/progress"
	"github.com/farfield-ml/farfield/internal/fetch"
	"github.com/farfield-ml/farfield/internal/task"
)

// Command is the verb data: it lists, fetches, generates and verifies data sets.
type Command struct {
	List     dataListCmd     `cmd:"" help:"List data sets: size, state and verification."`
	Fetch    dataFetchCmd    `cmd:"" help:"Fetch and verify data sets; continue partial downloads."`
	Generate dataGenerateCmd `cmd:"" help:"Generate a data set."`
	Verify   dataVerifyCmd   `cmd:"" help:"Verify the files of data sets."`
}

type dataListCmd struct {
	flags.DataFolder
	JSON bool     `name:"json" help:"Print JSON instead of a table."`
	Name []string `complete:"sets" arg:"" optional:"" help:"Data sets to describe in full; none: a table of all."`
}

// Help returns the long help text with examples.
func (c *dataListCmd) Help() string {
	return "A set is at hand if all its files are complete." + flags.JoinExamples(
		"farfield data list",
		"farfield data list --json mnist imdb",
	)
}

// ListedSet is a data set in the list.
type ListedSet struct {
	Name      string   `json:"name"`
	Doc       string   `json:"what"`
	Bytes     int64    `json:"bytes,omitempty"` // of the files whose size is known
	All       bool     `json:"bytes_known"`     // of all files
	State     string   `json:"at_hand"`
	IsReady   bool     `json:"ready"`
	Folder    string   `json:"folder"`
	Verified  string   `json:"verified_by"`
	Terms     string   `json:"terms"`
	Addresses []string `json:"addresses,omitempty"`
	Tasks     []string `json:"tasks"`
}

// DescribeSet describes a set and its state in a folder.
func DescribeSet(s *fetch.Set, folder string) ListedSet {
	l := ListedSet{Name: s.Name, Doc: s.Doc, Verified: s.VerificationIn(folder), Terms: s.Terms, Folder: filepath.Join(folder, s.Name), Tasks: []string{}}
	l.Bytes, l.All = s.Size()
	for _, f := range s.Files {
		l.Addresses = append(l.Addresses, f.URLs[0])
	}
	st := s.State(folder)
	l.IsReady = st.IsReady()
	switch {
	case st.Complete:
		l.State = "yes"
	case st.Part != nil && st.Part.IsWhole:
		l.State = "yes: " + st.Part.Doc
	case st.Part != nil:
		l.State = "part: " + st.Part.Doc
	case st.PartialBytes > 0:
		l.State = display.FormatSize(st.PartialBytes) + " fetched"
	default:
		l.State = "no"
	}
	for _, row := range task.Rows() {
		if slices.Contains(row.DataSets, s.Name) {
			l.Tasks = append(l.Tasks, row.Name)
		}
	}
	return l
}

// FormatSize returns the number of bytes to fetch as text.
func (l *ListedSet) FormatSize() string {
	switch {
	case len(l.Addresses) == 0:
		return "generated"
	case l.All:
		return display.FormatSize(l.Bytes)
	case l.Bytes > 0:
		return display.FormatSize(l.Bytes) + " and more"
	}
	return "not known"
}

func (c *dataListCmd) Run(e *env.Env) error {
	folder, err := c.Path()
	if err != nil {
		return err
	}
	sets, err := LookupSets(c.Name, fetch.Sets(), fetch.Lookup)
	if err != nil {
		return err
	}
	return Listing{Folder: folder, JSON: c.JSON, IsFull: len(c.Name) > 0, Columns: []Column{
		{"verified by", func(l *ListedSet) string { return l.Verified }},
		{"tasks", func(l *ListedSet) string { return strings.Join(l.Tasks, " ") }},
	}}.Print(e, sets)
}

// LookupSets returns the sets with the given names, or all sets if there are no names. It returns
// an error where lookup does.
func LookupSets(names []string, all []fetch.Set, lookup func(string) (*fetch.Set, error)) (sets []*fetch.Set, err error) {
	if len(names) == 0 {
		for i := range all {
			sets = append(sets, &all[i])
		}
	}
	for _, name := range names {
		s, err := lookup(name)
		if err != nil {
			return nil, env.MarkInput(err)
		}
		sets = append(sets, s)
	}
	return sets, nil
}

// Column is a column of the table of sets.
type Column struct {
	Name string
	Text func(*ListedSet) string
}

// Listing says how to print a list of sets in a folder.
type Listing struct {
	Folder  string
	JSON    bool
	IsFull  bool     // sets are described in full, not in a table
	Columns []Column // between the state and the description
}

// Print prints sets. It returns an error if the output fails.
func (x Listing) Print(e *env.Env, sets []*fetch.Set) error {
	list := []ListedSet{}
	for _, s := range sets {
		list = append(list, DescribeSet(s, x.Folder))
	}
	switch {
	case x.JSON:
		return display.PrintJSON(e.Stdout, list)
	case x.IsFull:
		return printSets(e, list)
	}
	w := tabwriter.NewWriter(e.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprint(w, "name\tsize\tat hand\t")
	for _, column := range x.Columns {
		fmt.Fprintf(w, "%s\t", column.Name)
	}
	fmt.Fprintln(w, "what")
	for i := range list {
		l := &list[i]
		fmt.Fprintf(w, "%s\t%s\t%s\t", l.Name, l.FormatSize(), l.State)
		for _, column := range x.Columns {
			fmt.Fprintf(w, "%s\t", column.Text(l))
		}
		fmt.Fprintln(w, l.Doc)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(e.Stdout, "in %s\n", x.Folder)
	return err
}

// printSets describes a few sets in full. It returns an error if the output fails.
func printSets(e *env.Env, list []ListedSet) error {
	w := tabwriter.NewWriter(e.Stdout, 0, 0, 2, ' ', 0)
	for _, l := range list {
		fmt.Fprintf(w, "%s\t%s\n  size\t%s\n  at hand\t%s\n  folder\t%s\n  verified by\t%s\n  terms\t%s\n",
			l.Name, l.Doc, l.FormatSize(), l.State, l.Folder, l.Verified, l.Terms)
		if len(l.Tasks) > 0 {
			fmt.Fprintf(w, "  tasks\t%s\n", strings.Join(l.Tasks, " "))
		}
		for _, a := range l.Addresses {
			fmt.Fprintf(w, "  from\t%s\n", a)
		}
	}
	return w.Flush()
}

type dataFetchCmd struct {
	flags.DataFolder
	SourceFolder string   `name:"from" placeholder:"DIR" help:"Take the files from DIR, verified; download nothing."`
	JSON         bool     `name:"json" help:"Print JSON, as data list does."`
	Name         []string `complete:"sets" arg:"" help:"Data sets."`
}

// Help returns the long help text with examples.
func (c *dataFetchCmd) Help() string {
	return "Without a network, --from takes the files from a folder; they have the names at the end of their addresses." + flags.JoinExamples(
		"farfield data fetch tinyshakespeare",
		"farfield data fetch mnist --from downloads",
	)
}

func (c *dataFetchCmd) Run(e *env.Env) error {
	folder, err := c.Path()
	if err != nil {
		return err
	}
	sets := make([]*fetch.Set, len(c.Name))
	for i, name := range c.Name {
		if sets[i], err = fetch.Lookup(name); err != nil {
			return env.MarkInput(err)
		}
		if len(sets[i].Files) == 0 {
			return env.InputErrorf("data set %s: it is generated: farfield data generate %s", name, name)
		}
	}
	return FetchSets(e, "data", fetch.Options{Folder: folder, SourceFolder: c.SourceFolder}, sets, c.JSON)
}

// FetchSets fetches sets for a verb and prints where they are. It returns an error if a set cannot
// be fetched or verified; without a network the error names the flag --from.
func FetchSets(e *env.Env, verb string, o fetch.Options, sets []*fetch.Set, asJSON bool) error {
	var list []ListedSet
	for _, s := range sets {
		p := progress.NewTransfer(e)
		o.Progress = p.ShowBytes
		o.OnWait = func(process int) {
			fmt.Fprintf(e.Notes(), "%s: waits for %s, which fetches it\n", s.Name, processText(process))
		}
		err := s.Fetch(e.Context, o)
		p.Finish()
		switch {
		case e.Context.Err() != nil:
			return env.Interruption{Err: e.Context.Err(), Text: fmt.Sprintf("stopped; farfield %s fetch %s goes on with what is there", verb, s.Name)}
		case errors.Is(err, fetch.ErrOffline):
			return fmt.Errorf("%w; with the files at hand: farfield %s fetch %s --from DIR", err, verb, s.Name)
		case err != nil && o.SourceFolder != "":
			return env.MarkInput(err)
		case err != nil:
			return err
		}
		l := DescribeSet(s, o.Folder)
		list = append(list, l)
		if !asJSON {
			fmt.Fprintf(e.Stdout, "%s: in %s, verified by: %s\n", s.Name, l.Folder, l.Verified)
		}
	}
	if asJSON {
		return display.PrintJSON(e.Stdout, list)
	}
	return nil
}

// processText names a process; 0 is one that is not known.
func processText(process int) string {
	if process == 0 {
		return "another process"
	}
	return fmt.Sprintf("process %d", process)
}

type dataVerifyCmd struct {
	flags.DataFolder
	JSON bool     `name:"json" help:"Print JSON, as data list does."`
	Name []string `complete:"sets" arg:"" help:"Data sets."`
}

// Help returns the long help text with examples.
func (c *dataVerifyCmd) Help() string {
	return "A set with a damaged or missing file is an error." + flags.JoinExamples(
		"farfield data verify mnist",
		"farfield data verify --folder sets tinyshakespeare imdb",
	)
}

func (c *dataVerifyCmd) Run(e *env.Env) error {
	folder, err := c.Path()
	if err != nil {
		return err
	}
	var list []ListedSet
	for _, name := range c.Name {
		s, err := fetch.Lookup(name)
		if err != nil {
			return env.MarkInput(err)
		}
		if len(s.Files) == 0 {
			return env.InputErrorf("data set %s: it is generated, there is nothing to hold it against", name)
		}
		if err := s.Verify(e.Context, folder); err != nil {
			if e.Context.Err() != nil {
				return err
			}
			return fmt.Errorf("data set %s: %w", name, err)
		}
		list = append(list, DescribeSet(s, folder))
		if !c.JSON {
			fmt.Fprintf(e.Stdout, "%s: as known, by: %s\n", name, s.VerificationIn(folder))
		}
	}
	if c.JSON {
		return display.PrintJSON(e.Stdout, list)
	}
	return nil
}
