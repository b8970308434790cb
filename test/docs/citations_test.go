package docs

import (
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	cited = regexp.MustCompile("(?:^|[\\s(\"'`,;=])((?:docs|test|cmd|cni|coe|mapping|restconf|deploy|yang|files|dhcppool)/[\\w./-]+|[\\w./-]+\\.md)(, \"[^\"]+\"|, rule \\d+)?")
	// citedDecision is a number of docs/decisions.
	citedDecision = regexp.MustCompile(`\b[Dd]ecision (\d+)`)
	// citedElsewhere are decisions and rules of documents whose name comes first.
	citedElsewhere = regexp.MustCompile(`\((\w+), (decision|section|rule) \d+\)`)
	rule           = regexp.MustCompile(`(?m)^(\d+)\. \*\*`)
	identifier     = regexp.MustCompile(`\.[A-Z]\w*$`)
	// citedTest is a test that a document names, with its package or without.
	citedTest    = regexp.MustCompile("`[\\w/.]*\\b((?:Test|Fuzz)[A-Z]\\w+)`")
	testFunction = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)
	commentLine  = regexp.MustCompile(`(?:^|\s)(?://|#)\s(.*)$`)
)

// notInTheRepository are paths that look like ours and are made by readers, or are of others.
var notInTheRepository = regexp.MustCompile(`^(deploy/kubernetes/mine|cni/(bin|net\.d)|mapping/backend/NAME|differences\.md)`)

// TestCitations: the files, headings, rules and decisions that comments and documents cite
// are in the repository.
func TestCitations(t *testing.T) {
	list := exec.CommandContext(t.Context(), "git", "ls-files", "--cached", "--others", "--exclude-standard",
		"*.go", "*.md", "*.yang", "*.yaml", "*.env", "*.service", "*.robot", "*.resource", "Makefile", "deploy", ".ci")
	list.Dir = root
	names, err := list.Output()
	require.NoError(t, err, "the test needs a git checkout")
	var broken []string
	for name := range strings.Lines(string(names)) {
		name = strings.TrimSpace(name)
		text, err := os.ReadFile(filepath.Join(root, name))
		if os.IsNotExist(err) {
			continue // removed, and not committed yet
		}
		require.NoError(t, err)
		number := 0
		for line := range strings.Lines(string(text)) {
			number++
			for _, why := range brokenCitations(t, name, strings.TrimSuffix(line, "\n")) {
				broken = append(broken, fmt.Sprintf("%s:%d: %s", name, number, why))
			}
		}
	}
	require.Empty(t, broken, "cite an RFC, a specification by its title, a file of the repository, or a decision:\n%s", strings.Join(broken, "\n"))
}

// TestCitedTests: the tests that documents name are in the repository.
func TestCitedTests(t *testing.T) {
	grep := exec.CommandContext(t.Context(), "git", "grep", "-hE", "^func (Test|Fuzz)", "--", "*_test.go")
	grep.Dir = root
	functions, err := grep.Output()
	require.NoError(t, err, "the test needs a git checkout")
	known := map[string]bool{}
	for _, found := range testFunction.FindAllSubmatch(functions, -1) {
		known[string(found[1])] = true
	}
	for _, path := range documents(t) {
		for _, found := range citedTest.FindAllSubmatch(read(t, path).text, -1) {
			require.True(t, known[string(found[1])], "%s names %s, which is not a test", path, found[1])
		}
	}
}

func brokenCitations(t *testing.T, name, line string) (broken []string) {
	if path.Ext(name) != ".md" {
		comment := commentLine.FindStringSubmatch(line)
		if comment == nil {
			return nil
		}
		line = comment[1]
	}
	for _, found := range cited.FindAllStringSubmatch(line, -1) {
		to := strings.TrimRight(found[1], "./-")
		if notInTheRepository.MatchString(to) || strings.HasPrefix(to, "coe/pods") {
			continue
		}
		at := resolve(name, to)
		if at == "" {
			broken = append(broken, to+" is not in the repository")
		} else if part := strings.TrimPrefix(found[2], ", "); part != "" && !hasPart(t, at, part) {
			broken = append(broken, to+" has no "+part)
		}
	}
	for _, found := range citedDecision.FindAllStringSubmatch(line, -1) {
		files, err := filepath.Glob(fmt.Sprintf("%s/%04s-*.md", decisionsFolder, found[1]))
		require.NoError(t, err)
		if len(files) == 0 {
			broken = append(broken, "there is no decision "+found[1])
		}
	}
	for _, found := range citedElsewhere.FindAllString(line, -1) {
		broken = append(broken, found+" names no document")
	}
	return broken
}

// resolve finds what a file cites: below the root, below its own folder, or, for the
// bare name of a document, in docs. A package may be followed by an identifier. It
// returns an empty path if there is nothing.
func resolve(from, to string) string {
	for _, to := range []string{to, identifier.ReplaceAllString(to, "")} {
		for _, folder := range []string{"", path.Dir(from), "docs"} {
			at := filepath.Join(root, folder, to)
			if _, err := os.Stat(at); err == nil {
				return at
			}
		}
	}
	return ""
}

// hasPart reports whether a document has a heading ("Name") or a numbered rule (rule 5).
func hasPart(t *testing.T, at, part string) bool {
	t.Helper()
	text := read(t, at).text
	found := heading.FindAllSubmatch(text, -1)
	if number, isRule := strings.CutPrefix(part, "rule "); isRule {
		found, part = rule.FindAllSubmatch(text, -1), number
	}
	name, err := strconv.Unquote(part)
	if err != nil {
		name = part
	}
	for _, f := range found {
		if string(f[1]) == name {
			return true
		}
	}
	return false
}
