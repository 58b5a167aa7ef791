// Package models implements the verb models: trained models, listed and fetched.
package models

import (
	"github.com/farfield-ml/farfield/internal/cli/data"
	"github.com/farfield-ml/farfield/internal/cli/env"
	"github.com/farfield-ml/farfield/internal/cli/flags"
	"github.com/farfield-ml/farfield/internal/fetch"
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
	return data.Listing{Folder: folder, JSON: c.JSON, IsFull: len(c.Name) > 0, Columns: []data.Column{
		{Name: "terms", Text: func(l *data.ListedSet) string { return l.Terms }},
	}}.Print(e, sets)
}

// lookup returns the models with names, or all models without names.
func lookup(names []string) ([]*fetch.Set, error) {
	return data.LookupSets(names, fetch.Models(), fetch.LookupModel)
}

type fetchCmd struct {
	flags.DataFolder
	SourceFolder string   `name:"from" placeholder:"DIR" help:"Take the files from DIR, verified; download nothing."`
	JSON         bool     `name:"json" help:"Print JSON, as models list does."`
	Name         []string `complete:"models" arg:"" help:"Models."`
}

// Help are examples.
func (c *fetchCmd) Help() string {
	return "Files come from their canonical addresses and are verified by their checksums; the output says where files have none. " +
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
