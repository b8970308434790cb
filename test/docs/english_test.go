package docs

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// odd are patterns of sentences that a reader has to read twice, and what to write instead.
// CONTRIBUTING.md has the rules, and docs/glossary.md the terms.
var odd = []struct {
	write   string
	hint    string // one of these texts is in every match; it makes the test fast
	pattern *regexp.Regexp
}{
	{"reports whether", "whether| if", regexp.MustCompile(`\btells? (of )?(whether|if)\b`)},
	{"the name of the thing", " of ", regexp.MustCompile(`\b(those|that|these|one) of (those|that|these|whom|who)\b|\bthose of\b`)},
	{"again, restart, reconnect, re-read", "anew", regexp.MustCompile(`\banew\b`)},
	{"external writer, external object", "another hand|oreign", regexp.MustCompile(`\banother hand\b|\b[Ff]oreign\b`)},
	{"a noun as the subject of the sentence", "Who|What|Of ", regexp.MustCompile(`(^|// |\. )(Who|What|Whoever|Of) [a-z]+ [^?]*$`)},
	{"is not, cannot", " no ", regexp.MustCompile(`\b(is|are|was|were) no [a-z]+\b`)},
	{"cannot, must not, might not", "may not", regexp.MustCompile(`\bmay not\b`)},
	{"who, or the name of the person", "whom", regexp.MustCompile(`\bwhom\b`)},
	{"even if", "be it", regexp.MustCompile(`\bbe it\b`)},
	{"so that … not", "lest", regexp.MustCompile(`\blest\b`)},
	{"except", "but for", regexp.MustCompile(`\bbut for\b`)},
	{"must be", "to be ", regexp.MustCompile(`\b(is|are) to be [a-z]+(ed|en|nd|ld|wn|pt)\b`)},
	{"standby replica", "nlook|look", regexp.MustCompile(`\b[Oo]nlook(er|ers|ing)\b|\blook(s|ing|ed)? on\b`)},
	{"notify, notifier", "ell|rung", regexp.MustCompile(`\b[Bb]ells?\b|\brungs?\b`)},
	{"requested address", "br", regexp.MustCompile(`\b(brought|brings?) (an? |no |its |their |along |the )?address(es)?\b`)},
	{"deleted, removed", "gone", regexp.MustCompile(`\bfor gone\b`)},
	{"programs, writes", "ealis", regexp.MustCompile(`\b[Rr]ealis(e|es|ed|ing|ation)\b`)},
	{"has been listed, has been read", "all|everything", regexp.MustCompile(`\b(said|says|say|heard) (of )?(all|everything)( that)? (it|they|he) (knows?|knew)\b|\bsaid all\b`)},
	{"reported", "said", regexp.MustCompile(`\b(is|are|was|were|be|been) said\b|\bsaid of\b`)},
	{"gets, receives, learns", "told", regexp.MustCompile(`\b(is|are|was|were|be|been) told\b`)},
	{"transaction order, lock, alternating", "turn", regexp.MustCompile(`\bby turns\b|\bturns of\b`)},
	{"disk space, space", "room", regexp.MustCompile(`\b(no|more|is|enough|makes?|the) room\b`)},
	{"what happens to, what X becomes", "of", regexp.MustCompile(`\b(becomes?|became) of\b`)},
	{"prefetch", "early", regexp.MustCompile(`\bearly (read|reading)\b`)},
}

// plain is English that a pattern would match, although it is plain.
var plain = regexp.MustCompile(`\b[Tt]here (is|are|was|were) no\b|\bno longer\b|\bno more than\b`)

// TestPlainEnglish fails if a line of a comment, string, document or YANG module breaks a rule.
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
		number := 0
		for line := range strings.Lines(string(text)) {
			number++
			if write := breaks(name, strings.TrimSuffix(line, "\n")); write != "" {
				found = append(found, fmt.Sprintf("%s:%d: write: %s: %s", name, number, write, strings.TrimSpace(line)))
			}
		}
	}
	require.Empty(t, strings.Join(found, "\n"), "mend these lines")
}

// breaks returns what to write instead of a line, or an empty text if it breaks no rule.
// Of Go code only comments and strings count.
func breaks(name, line string) string {
	if strings.HasSuffix(name, ".go") && !strings.Contains(line, "//") && !strings.Contains(line, `"`) {
		return ""
	}
	line = plain.ReplaceAllString(line, "")
	for _, rule := range odd {
		for hint := range strings.SplitSeq(rule.hint, "|") {
			if strings.Contains(line, hint) && rule.pattern.MatchString(line) {
				return rule.write
			}
		}
	}
	return ""
}
