package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/farfield-ml/farfield/fetch"
	"github.com/farfield-ml/farfield/task"
)

// dataCmd is the verb data: what there is to learn from, and how it gets here.
type dataCmd struct {
	List     dataListCmd     `cmd:"" help:"List the data sets: their size, whether they are at hand, by what they are verified."`
	Fetch    dataFetchCmd    `cmd:"" help:"Fetch data sets from their canonical addresses, verified; an interrupted download goes on."`
	Generate dataGenerateCmd `cmd:"" help:"Generate a data set."`
	Verify   dataVerifyCmd   `cmd:"" help:"Hold the files of data sets against what is known of them."`
}

// dataFolder is where data sets lie.
type dataFolder struct {
	Folder string `placeholder:"DIR" env:"FARFIELD_DATA" help:"Folder of data sets, each in a folder of its name. By default that of the user's data or cache. Also $$FARFIELD_DATA."`
}

// path returns the folder.
func (d *dataFolder) path() (string, error) {
	if d.Folder != "" {
		return d.Folder, nil
	}
	if home := os.Getenv("XDG_DATA_HOME"); filepath.IsAbs(home) && runtime.GOOS != "windows" {
		return filepath.Join(home, "farfield"), nil
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", inputf("--folder: it is not given, and there is no other: %w", err)
	}
	return filepath.Join(cache, "farfield", "data"), nil
}

type dataListCmd struct {
	dataFolder
	JSON bool     `name:"json" help:"Print JSON instead of a table."`
	Name []string `complete:"sets" arg:"" optional:"" help:"Data sets of which everything is told; none for a table of all."`
}

// Help are examples.
func (c *dataListCmd) Help() string {
	return "A set is at hand when its files are whole." + examples(
		"farfield data list",
		"farfield data list --json mnist imdb",
	)
}

// listed is what the list says of a set.
type listed struct {
	Name      string   `json:"name"`
	Doc       string   `json:"what"`
	Bytes     int64    `json:"bytes,omitempty"` // of the files whose size is known
	All       bool     `json:"bytes_known"`     // of all files
	State     string   `json:"at_hand"`
	Ready     bool     `json:"ready"`
	Folder    string   `json:"folder"`
	Verified  string   `json:"verified_by"`
	Terms     string   `json:"terms"`
	Addresses []string `json:"addresses,omitempty"`
	Tasks     []string `json:"tasks"`
}

func describeSet(s *fetch.Set, folder string) listed {
	l := listed{Name: s.Name, Doc: s.Doc, Verified: s.VerificationIn(folder), Terms: s.Terms, Folder: filepath.Join(folder, s.Name), Tasks: []string{}}
	l.Bytes, l.All = s.Size()
	for _, f := range s.Files {
		l.Addresses = append(l.Addresses, f.URLs[0])
	}
	st := s.State(folder)
	l.Ready = st.IsReady()
	switch {
	case st.Complete:
		l.State = "yes"
	case st.Part != nil && st.Part.IsWhole:
		l.State = "yes: " + st.Part.Doc
	case st.Part != nil:
		l.State = "part: " + st.Part.Doc
	case st.PartialBytes > 0:
		l.State = size(st.PartialBytes) + " fetched"
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

// size is a number of bytes in words.
func size(bytes int64) string {
	switch {
	case bytes >= 1e9:
		return fmt.Sprintf("%.1f GB", float64(bytes)/1e9)
	case bytes >= 1e6:
		return fmt.Sprintf("%.1f MB", float64(bytes)/1e6)
	case bytes >= 1e3:
		return fmt.Sprintf("%.1f kB", float64(bytes)/1e3)
	}
	return fmt.Sprintf("%d B", bytes)
}

// size is what is fetched, in words.
func (l *listed) size() string {
	switch {
	case len(l.Addresses) == 0:
		return "generated"
	case l.All:
		return size(l.Bytes)
	case l.Bytes > 0:
		return size(l.Bytes) + " and more"
	}
	return "not known"
}

func (c *dataListCmd) Run(e *env) error {
	folder, err := c.path()
	if err != nil {
		return err
	}
	var list []listed
	if len(c.Name) == 0 {
		for _, s := range fetch.Sets() {
			list = append(list, describeSet(&s, folder))
		}
	}
	for _, name := range c.Name {
		s, err := fetch.Lookup(name)
		if err != nil {
			return input(err)
		}
		list = append(list, describeSet(s, folder))
	}
	switch {
	case c.JSON:
		return printJSON(e.stdout, list)
	case len(c.Name) > 0:
		return printSets(e, list)
	}
	w := tabwriter.NewWriter(e.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "name\tsize\tat hand\tverified by\ttasks\twhat")
	for _, l := range list {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", l.Name, l.size(), l.State, l.Verified, strings.Join(l.Tasks, " "), l.Doc)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	_, err = fmt.Fprintf(e.stdout, "in %s\n", folder)
	return err
}

// printSets tells everything of a few sets.
func printSets(e *env, list []listed) error {
	w := tabwriter.NewWriter(e.stdout, 0, 0, 2, ' ', 0)
	for _, l := range list {
		fmt.Fprintf(w, "%s\t%s\n  size\t%s\n  at hand\t%s\n  folder\t%s\n  verified by\t%s\n  terms\t%s\n  tasks\t%s\n",
			l.Name, l.Doc, l.size(), l.State, l.Folder, l.Verified, l.Terms, strings.Join(l.Tasks, " "))
		for _, a := range l.Addresses {
			fmt.Fprintf(w, "  from\t%s\n", a)
		}
	}
	return w.Flush()
}

type dataFetchCmd struct {
	dataFolder
	From string   `placeholder:"DIR" help:"Folder where the files are, under the names of their addresses, verified alike; nothing is downloaded."`
	JSON bool     `name:"json" help:"Print what there is as JSON, as data list does."`
	Name []string `complete:"sets" arg:"" help:"Data sets."`
}

// Help are examples.
func (c *dataFetchCmd) Help() string {
	return "Without a network, --from takes files that were brought here some other way." + examples(
		"farfield data fetch tinyshakespeare",
		"farfield data fetch mnist --from downloads",
	)
}

func (c *dataFetchCmd) Run(e *env) error {
	folder, err := c.path()
	if err != nil {
		return err
	}
	sets := make([]*fetch.Set, len(c.Name))
	for i, name := range c.Name {
		if sets[i], err = fetch.Lookup(name); err != nil {
			return input(err)
		}
		if len(sets[i].Files) == 0 {
			return inputf("data set %s: it is generated: farfield data generate %s", name, name)
		}
	}
	var list []listed
	for _, s := range sets {
		p := newTransfer(e)
		err := s.Fetch(e.ctx, fetch.Options{Folder: folder, SourceFolder: c.From, Progress: p.bytes, OnWait: func(process int) {
			fmt.Fprintf(e.notes(), "%s: waits for %s, which fetches it\n", s.Name, processText(process))
		}})
		p.finish()
		switch {
		case e.ctx.Err() != nil:
			return interruption{e.ctx.Err(), fmt.Sprintf("stopped; farfield data fetch %s goes on with what is there", s.Name)}
		case errors.Is(err, fetch.ErrOffline):
			return fmt.Errorf("%w; with the files at hand: farfield data fetch %s --from DIR", err, s.Name)
		case err != nil && c.From != "":
			return input(err)
		case err != nil:
			return err
		}
		l := describeSet(s, folder)
		list = append(list, l)
		if !c.JSON {
			fmt.Fprintf(e.stdout, "%s: in %s, verified by: %s\n", s.Name, l.Folder, l.Verified)
		}
	}
	if c.JSON {
		return printJSON(e.stdout, list)
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
	dataFolder
	JSON bool     `name:"json" help:"Print what was held as JSON, as data list does."`
	Name []string `complete:"sets" arg:"" help:"Data sets."`
}

// Help are examples.
func (c *dataVerifyCmd) Help() string {
	return "What is damaged or lacks a file fails." + examples(
		"farfield data verify mnist",
		"farfield data verify --folder sets tinyshakespeare imdb",
	)
}

func (c *dataVerifyCmd) Run(e *env) error {
	folder, err := c.path()
	if err != nil {
		return err
	}
	var list []listed
	for _, name := range c.Name {
		s, err := fetch.Lookup(name)
		if err != nil {
			return input(err)
		}
		if len(s.Files) == 0 {
			return inputf("data set %s: it is generated, there is nothing to hold it against", name)
		}
		if err := s.Verify(e.ctx, folder); err != nil {
			if e.ctx.Err() != nil {
				return err
			}
			return fmt.Errorf("data set %s: %w", name, err)
		}
		list = append(list, describeSet(s, folder))
		if !c.JSON {
			fmt.Fprintf(e.stdout, "%s: as known, by: %s\n", name, s.VerificationIn(folder))
		}
	}
	if c.JSON {
		return printJSON(e.stdout, list)
	}
	return nil
}
