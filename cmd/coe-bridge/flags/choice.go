// Package flags has the flags that several commands share, and reads flags from the
// environment and a file.
package flags

import (
	"errors"
	"slices"

	"github.com/spf13/cobra"
)

// Choice is a flag whose value is one of several words.
type Choice[T ~string] struct {
	Value *T
	Words []T
}

// Register adds the flag to a command. The default usage lists the words.
func (c Choice[T]) Register(cmd *cobra.Command, name, short, usage string) {
	if usage == "" {
		usage = c.list()
	}
	cmd.Flags().VarP(c, name, short, usage)
	words := make([]string, len(c.Words))
	for i, w := range c.Words {
		words[i] = string(w)
	}
	_ = cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp))
}

// list joins the words for a sentence.
func (c Choice[T]) list() string {
	text := string(c.Words[0])
	for i, w := range c.Words[1:] {
		text += []string{", ", " or "}[(i+2)/len(c.Words)] + string(w)
	}
	return text
}

// String implements pflag.Value.
func (c Choice[T]) String() string {
	if c.Value == nil { // pflag calls it for the zero value
		return ""
	}
	return string(*c.Value)
}

// Type implements pflag.Value.
func (c Choice[T]) Type() string { return "word" }

// Set implements pflag.Value.
func (c Choice[T]) Set(s string) error {
	if !slices.Contains(c.Words, T(s)) {
		return errors.New("want " + c.list())
	}
	*c.Value = T(s)
	return nil
}
