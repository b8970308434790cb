package main

import (
	"errors"
	"slices"

	"github.com/spf13/cobra"
)

// choice is a flag whose value is one of several words.
type choice[T ~string] struct {
	value *T
	words []T
}

// register makes it a flag; without a usage that is which words there are.
func (c choice[T]) register(cmd *cobra.Command, name, short, usage string) {
	if usage == "" {
		usage = c.list()
	}
	cmd.Flags().VarP(c, name, short, usage)
	words := make([]string, len(c.words))
	for i, w := range c.words {
		words[i] = string(w)
	}
	_ = cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp))
}

// list is the words in a sentence.
func (c choice[T]) list() string {
	text := string(c.words[0])
	for i, w := range c.words[1:] {
		text += []string{", ", " or "}[(i+2)/len(c.words)] + string(w)
	}
	return text
}

// String implements pflag.Value.
func (c choice[T]) String() string {
	if c.value == nil { // the zero value, which pflag asks for
		return ""
	}
	return string(*c.value)
}

// Type implements pflag.Value.
func (c choice[T]) Type() string { return "word" }

// Set implements pflag.Value.
func (c choice[T]) Set(s string) error {
	if !slices.Contains(c.words, T(s)) {
		return errors.New("want " + c.list())
	}
	*c.value = T(s)
	return nil
}
