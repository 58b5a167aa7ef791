package flags

import (
	"maps"

	"github.com/farfield-ml/farfield/internal/cli/env"
)

// Presence says whether a flag was given.
type Presence struct {
	Name    string
	IsGiven bool
}

// RefuseFlags returns an error with the reason why for the first flag that is present.
func RefuseFlags(why string, flags ...Presence) error {
	for _, f := range flags {
		if f.IsGiven {
			return env.InputErrorf("%s: %s", f.Name, why)
		}
	}
	return nil
}

// OverrideValue sets dst to *flag and adds name to given, if flag is not nil.
func OverrideValue[T any](given *[]string, name string, dst, flag *T) {
	if flag != nil {
		*given = append(*given, name)
		*dst = *flag
	}
}

// OverrideText is OverrideValue for a text; an empty text is a flag that is not given.
func OverrideText[S ~string](given *[]string, name string, dst *S, text string) {
	if text != "" {
		value := S(text)
		OverrideValue(given, name, dst, &value)
	}
}

// MergeSettings returns the settings of a and b; those of b replace equal names. a does not change.
func MergeSettings(a, b map[string]string) map[string]string {
	set := maps.Clone(a)
	if set == nil {
		set = map[string]string{}
	}
	maps.Copy(set, b)
	return set
}
