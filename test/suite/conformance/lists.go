package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

//go:embed passing.txt
var passingText string

//go:embed excluded.txt
var excludedText string

//go:embed passing-odl.txt
var passingODL string

//go:embed excluded-odl.txt
var excludedODL string

// The backends of the cluster.
const onOVN, onODL = "ovn", "odl"

// listFiles has the files with the lists of each backend: the tests that pass, and the excluded ones. OpenDaylight excludes
// the tests of excluded.txt too, because they were not tried there.
var listFiles = map[string][]listFile{
	onOVN: {{"passing.txt", passingText}, {"excluded.txt", excludedText}},
	onODL: {{"passing-odl.txt", passingODL}, {"excluded.txt", excludedText}, {"excluded-odl.txt", excludedODL}},
}

type listFile struct{ name, text string }

// lists has the suite's tests that must pass, and the excluded tests.
type lists struct {
	passing  []string          // names
	excluded map[string]string // reasons, by name
}

// readLists reads the lists of a backend, as they are in the tree.
func readLists(backend string) (l lists, err error) {
	passing, others := listFiles[backend][0], listFiles[backend][1:]
	if l.passing, err = parsePassing(passing.text); err != nil {
		return l, fmt.Errorf("read %s: %w", passing.name, err)
	}
	l.excluded = map[string]string{}
	for _, f := range others {
		excluded, err := parseExcluded(f.text)
		if err != nil {
			return l, fmt.Errorf("read %s: %w", f.name, err)
		}
		for name, reason := range excluded {
			if l.excluded[name] != "" || slices.Contains(l.passing, name) {
				return l, fmt.Errorf("%q of %s is also in another list", name, f.name)
			}
			l.excluded[name] = reason
		}
	}
	return l, nil
}

// parsePassing reads sorted names, one in each line.
func parsePassing(text string) ([]string, error) {
	names := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	for i, name := range names {
		if !strings.HasPrefix(name, group) {
			return nil, fmt.Errorf("line %d: %q is not a test of %s", i+1, name, group)
		}
		if i > 0 && names[i-1] >= name {
			return nil, fmt.Errorf("line %d: %q is not sorted, or there twice", i+1, name)
		}
	}
	return names, nil
}

// parseExcluded reads paragraphs. A paragraph has a reason, in lines that begin with #, and the
// names of the tests that are excluded for this reason.
func parseExcluded(text string) (map[string]string, error) {
	excluded := map[string]string{}
	for i, paragraph := range strings.Split(strings.TrimSpace(text), "\n\n") {
		reason, names := splitParagraph(paragraph)
		if reason == "" || len(names) == 0 {
			return nil, fmt.Errorf("paragraph %d has no reason, or no test: %q", i+1, paragraph)
		}
		for _, name := range names {
			if !strings.HasPrefix(name, group) {
				return nil, fmt.Errorf("paragraph %d: %q is not a test of %s", i+1, name, group)
			}
			if _, found := excluded[name]; found {
				return nil, fmt.Errorf("paragraph %d: %q is there twice", i+1, name)
			}
			excluded[name] = reason
		}
	}
	return excluded, nil
}

func splitParagraph(paragraph string) (reason string, names []string) {
	var words []string
	for line := range strings.SplitSeq(paragraph, "\n") {
		if word, ok := strings.CutPrefix(line, "# "); ok && len(names) == 0 {
			words = append(words, word)
		} else {
			names = append(names, line)
		}
	}
	return strings.Join(words, " "), names
}

// compare fails unless the two lists together have exactly the tests of the suite.
func (l lists) compare(suite []string) error {
	var errs []error
	for _, name := range suite {
		_, excluded := l.excluded[name]
		if !excluded && !slices.Contains(l.passing, name) {
			errs = append(errs, fmt.Errorf("in neither list: %s", name))
		}
	}
	for _, name := range l.names() {
		if !slices.Contains(suite, name) {
			errs = append(errs, fmt.Errorf("not in the suite any more: %s", name))
		}
	}
	if len(errs) > 0 {
		return fmt.Errorf("the lists must name the suite's tests:\n%w", errors.Join(errs...))
	}
	return nil
}

// names returns the names in both lists, sorted.
func (l lists) names() []string {
	names := slices.Clone(l.passing)
	for name := range l.excluded {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// dualStack is in the names of the tests that need both families.
const dualStack = "[Feature:IPv6DualStack]"

// mustPass returns the tests that must pass on a cluster. If IPv6 addresses come first, these are the tests that need both
// families: others need addresses of load balancers, which are IPv4 alone.
func (l lists) mustPass(ipv6First bool) []string {
	if !ipv6First {
		return l.passing
	}
	return slices.DeleteFunc(slices.Clone(l.passing), func(name string) bool { return !strings.Contains(name, dualStack) })
}

// choose returns the tests to run: the tests that must pass or, if only is not nil, the tests of the
// suite that match it. The lists of the backend must match the tests of the suite.
func choose(ctx context.Context, s *suite, backend string, ipv6First bool, only *regexp.Regexp) ([]string, error) {
	all, err := s.tests(ctx)
	if err != nil {
		return nil, err
	}
	l, err := readLists(backend)
	if err != nil {
		return nil, err
	}
	if only == nil {
		return l.mustPass(ipv6First), l.compare(all)
	}
	chosen := slices.DeleteFunc(all, func(name string) bool { return !only.MatchString(name) })
	if len(chosen) == 0 {
		return nil, fmt.Errorf("no test of %smatches %q", group, only)
	}
	return chosen, nil
}
