// Package models implements the verb models: trained models, listed and fetched.
package models

import (
	"fmt"
	"text/tabwriter"

	"github.com/farfield-ml/farfield/fetch"
	"github.com/farfield-ml/farfield/internal/cli/data"
	"github.com/farfield-ml/farfield/internal/cli/display"
	"github.com/farfield-ml/farfield/internal/cli/env"
	"github.com/farfield-ml/farfield/internal/cli/flags"
)

// Command is the verb models: it lists and fetches trained models.
type Command struct {
	List  listCmd  `cmd:"" help:"List models: size, state and verification."`
	Fetch fetchCmd `cmd:"" help:"Fetch and verify models; continue partial downloads."`
}

type listCmd struct {
	flags.DataFolder
	JSON bool     `name:"json" help:"Print JSON instead of a table."`
	Name []string `complete:"models" arg:"" optional:"" help:"Models to describe in full; none: a table of all."`
}

// Help are examples.
func (c *listCmd) Help() string {
	return "Every verb takes the name of a model at hand in place of its folder. " +
		"Other models need no entry here: --model takes any folder with config.json, model.safetensors and a tokenizer." + flags.JoinExamples(
		"farfield models list",
		"farfield models list --json all-MiniLM-L6-v2",
	)
}

// Run lists models. It returns an error for an unknown name or if the output fails.
func (c *listCmd) Run(e *env.Env) error {
	folder, err := c.ModelsPath()
	if err != nil {
		return err
	}
	sets, err := lookup(c.Name)
	if err != nil {
		return err
	}
	list := []data.ListedSet{}
	for _, s := range sets {
		list = append(list, data.DescribeSet(s, folder))
	}
	switch {
	case c.JSON:
		return display.PrintJSON(e.Stdout, list)
	case len(c.Name) > 0:
		return data.PrintSets(e, list)
	}
	w := tabwriter.NewWriter(e.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "name\tsize\tat hand\tterms\twhat")
	for _, l := range list {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", l.Name, l.FormatSize(), l.State, l.Terms, l.Doc)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	_, err = fmt.Fprintf(e.Stdout, "in %s\n", folder)
	return err
}

// lookup returns the models with names, or all models without names.
func lookup(names []string) (sets []*fetch.Set, err error) {
	if len(names) == 0 {
		for _, s := range fetch.Models() {
			sets = append(sets, &s)
		}
	}
	for _, name := range names {
		s, err := fetch.LookupModel(name)
		if err != nil {
			return nil, env.MarkInput(err)
		}
		sets = append(sets, s)
	}
	return sets, nil
}

type fetchCmd struct {
	flags.DataFolder
	SourceFolder string   `name:"from" placeholder:"DIR" help:"Take the files from DIR, verified; download nothing."`
	JSON         bool     `name:"json" help:"Print JSON, as models list does."`
	Name         []string `complete:"models" arg:"" help:"Models."`
}

// Help are examples.
func (c *fetchCmd) Help() string {
	return "Files come from their canonical addresses and are verified by their checksums. " +
		"Without a network, --from takes them from a folder, such as a clone of the model's repository." + flags.JoinExamples(
		"farfield models fetch all-MiniLM-L6-v2",
		"farfield models fetch all-MiniLM-L6-v2 --from downloads",
	)
}

// Run fetches models. It returns an error for an unknown name, or if a file cannot be
// fetched or verified.
func (c *fetchCmd) Run(e *env.Env) error {
	folder, err := c.ModelsPath()
	if err != nil {
		return err
	}
	sets, err := lookup(c.Name)
	if err != nil {
		return err
	}
	return data.FetchSets(e, "models", fetch.Options{Folder: folder, SourceFolder: c.SourceFolder}, sets, c.JSON)
}
