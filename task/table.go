// Package task is the catalogue of what there is to learn: one file each, and
// this table. A task reads or makes its data, and says by which simple means a
// model must do better.
//
//	name  data                              judged by      baseline
//	text  a file, a folder, or Go's source  bits per byte  Ngram
package task

import (
	"fmt"
	"strings"
)

// Row is a task of the catalogue.
type Row struct {
	Name, Doc string
	Open      func(Options) (*Text, error)
}

var table = []Row{
	{"text", "predict each token of a text from those before it", OpenText},
}

// Names returns the names of the catalogue in its order.
func Names() []string {
	names := make([]string, len(table))
	for i, r := range table {
		names[i] = r.Name
	}
	return names
}

// Lookup returns the row of that name. The error for a name that is not there
// lists those that are.
func Lookup(name string) (Row, error) {
	for _, r := range table {
		if r.Name == name {
			return r, nil
		}
	}
	return Row{}, fmt.Errorf("task %q: unknown; there are: %s", name, strings.Join(Names(), ", "))
}
