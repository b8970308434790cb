package docs

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// oddSentences is how many lines of the project break a rule of plain English. Lower
// it when a change mends some; a change must not raise it.
const oddSentences = 1071

// odd are the patterns of sentences that a reader has to read twice.
var odd = map[string]*regexp.Regexp{
	"write: reports whether":                regexp.MustCompile(`tells? whether`),
	"name the thing itself":                 regexp.MustCompile(`\b(those|that|these|one) of (those|that|these|whom|who)\b|\bthose of\b`),
	"write: again, restart, reconnect":      regexp.MustCompile(`\banew\b`),
	"write: external":                       regexp.MustCompile(`another hand`),
	"a clause is the subject of a sentence": regexp.MustCompile(`(^|// |\. )(Who|What|Whoever|Of) [a-z]+ [^?]*$`),
	"write: is not":                         regexp.MustCompile(`\bis no [a-z]+\b`),
	"write: who, or name the person":        regexp.MustCompile(`\bwhom\b`),
	"write: even if":                        regexp.MustCompile(`\bbe it\b`),
}

// TestPlainEnglish counts the sentences in comments, strings, documents and YANG
// modules that break a rule. It fails where there are more than before.
func TestPlainEnglish(t *testing.T) {
	list := exec.CommandContext(t.Context(), "git", "ls-files", "*.go", "*.md", "*.yang")
	list.Dir = root
	names, err := list.Output()
	require.NoError(t, err, "the test needs a git checkout")
	var found []string
	for name := range strings.Lines(string(names)) {
		name = strings.TrimSpace(name)
		if name == "test/docs/english_test.go" {
			continue
		}
		text, err := os.ReadFile(filepath.Join(root, name))
		require.NoError(t, err)
		for line := range strings.Lines(string(text)) {
			if why := breaks(name, line); why != "" {
				found = append(found, name+": "+why+": "+strings.TrimSpace(line))
			}
		}
	}
	require.LessOrEqual(t, len(found), oddSentences, "the last are:\n%s", strings.Join(found[max(0, len(found)-20):], "\n"))
}

// breaks is the rule that a line breaks, or empty. Of Go code only comments and
// strings count.
func breaks(name, line string) string {
	if strings.HasSuffix(name, ".go") && !strings.Contains(line, "//") && !strings.Contains(line, `"`) {
		return ""
	}
	for why, pattern := range odd {
		if pattern.MatchString(line) {
			return why
		}
	}
	return ""
}
