// Package story runs stories on a bridge and checks the results. A story is a txtar archive. Its comment is the
// script, and its files are bodies and expectations. A script has blocks, separated by empty lines. The steps of
// a block can be made in any order. A step is one line:
//
//	post PATH FILE      POST the file to a draft-02 config path
//	put PATH FILE       PUT it
//	delete PATH         DELETE
//	model FILE          the confirmed model has these objects, apart from kinds that the backend does not confirm; a line is "kind name"
//	rows FILE           OVN has these rows of coe-bridge; a line is "table name" (only for OVN)
//	problems FILE       the status has these problems; a line is "kind name reason"
//	healed FILE         the same, after released addresses have rested
//
// Lines that begin with # are comments. Chosen addresses depend on the order of events, so a model has * in their
// place.
package story

import (
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"

	"golang.org/x/tools/txtar"
)

// Story is a story, as it was written or as an expander has changed it.
type Story struct {
	Name   string
	Blocks [][]Step
	Files  map[string]string
}

// Step is one line of a script.
type Step struct {
	Verb string // a verb of a script, or restart
	Path string
	File string
	// Again says that the step was made before. Its answer can then be different.
	Again bool
}

// IsCheck reports whether the step changes nothing.
func (s Step) IsCheck() bool {
	return slices.Contains([]string{"model", "rows", "problems", "healed"}, s.Verb)
}

// Parse decodes a story.
func Parse(name string, text []byte) (Story, error) {
	archive := txtar.Parse(text)
	s := Story{Name: strings.TrimSuffix(path.Base(name), ".txtar"), Files: map[string]string{}}
	for _, f := range archive.Files {
		s.Files[f.Name] = string(f.Data)
	}
	var block []Step
	for n, line := range strings.Split(string(archive.Comment)+"\n", "\n") {
		line = strings.TrimSpace(line)
		if line == "" {
			if len(block) > 0 {
				s.Blocks = append(s.Blocks, block)
			}
			block = nil
			continue
		}
		if strings.HasPrefix(line, "#") {
			continue
		}
		step, err := s.parseStep(strings.Fields(line))
		if err != nil {
			return s, fmt.Errorf("%s:%d: %w", name, n+1, err)
		}
		block = append(block, step)
	}
	return s, nil
}

func (s Story) parseStep(words []string) (Step, error) {
	step := Step{Verb: words[0]}
	switch {
	case (step.Verb == "post" || step.Verb == "put") && len(words) == 3:
		step.Path, step.File = words[1], words[2]
	case step.Verb == "delete" && len(words) == 2:
		step.Path = words[1]
	case step.IsCheck() && len(words) == 2:
		step.File = words[1]
	default:
		return step, fmt.Errorf("%q: no such step", strings.Join(words, " "))
	}
	if _, found := s.Files[step.File]; step.File != "" && !found {
		return step, fmt.Errorf("no file %q in the story", step.File)
	}
	return step, nil
}

// Expander makes another story with the same result from a story.
type Expander struct {
	Name   string
	Expand func(Story) Story
}

// Expanders returns the ways in which every story is run.
func Expanders() []Expander {
	return []Expander{
		{"as written", func(s Story) Story { return s }},
		{"reversed", reversed},
		{"split", split},
		{"doubled", doubled},
		{"restarted", restarted},
	}
}

// each makes a story in which change has replaced each block.
func (s Story) each(change func(Story, []Step) []Step) Story {
	out := Story{Name: s.Name, Files: map[string]string{}}
	for name, text := range s.Files {
		out.Files[name] = text
	}
	for _, block := range s.Blocks {
		out.Blocks = append(out.Blocks, change(out, block))
	}
	return out
}

// reversed reverses the steps of each block, and the entries of each list in a body.
func reversed(s Story) Story {
	return s.each(func(out Story, block []Step) []Step {
		var changes, checks []Step
		for _, step := range block {
			if step.IsCheck() {
				checks = append(checks, step)
				continue
			}
			if step.File != "" {
				out.Files[step.File] = reverseEntries(out.Files[step.File])
			}
			changes = append([]Step{step}, changes...)
		}
		return append(changes, checks...)
	})
}

func reverseEntries(body string) string {
	var members map[string][]json.RawMessage
	if json.Unmarshal([]byte(body), &members) != nil {
		return body
	}
	for _, entries := range members {
		for i, j := 0, len(entries)-1; i < j; i, j = i+1, j-1 {
			entries[i], entries[j] = entries[j], entries[i]
		}
	}
	text, err := json.Marshal(members)
	if err != nil {
		return body
	}
	return string(text)
}

// split POSTs the entries of a body one by one.
func split(s Story) Story {
	return s.each(func(out Story, block []Step) []Step {
		var steps []Step
		for _, step := range block {
			var members map[string][]json.RawMessage
			if step.Verb != "post" || json.Unmarshal([]byte(out.Files[step.File]), &members) != nil {
				steps = append(steps, step)
				continue
			}
			for name, entries := range members {
				for i, entry := range entries {
					one := step
					one.File = fmt.Sprintf("%s#%s%d", step.File, name, i)
					out.Files[one.File] = fmt.Sprintf("{%q:[%s]}", name, entry)
					steps = append(steps, one)
				}
			}
		}
		return steps
	})
}

// doubled makes every change twice.
func doubled(s Story) Story {
	return s.each(func(_ Story, block []Step) []Step {
		var steps []Step
		for _, step := range block {
			steps = append(steps, step)
			if !step.IsCheck() {
				step.Again = true
				steps = append(steps, step)
			}
		}
		return steps
	})
}

// restarted restarts the bridge between any two steps.
func restarted(s Story) Story {
	return s.each(func(_ Story, block []Step) []Step {
		var steps []Step
		for _, step := range block {
			steps = append(steps, step, Step{Verb: "restart"})
		}
		return steps
	})
}
