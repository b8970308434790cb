package docs

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const decisionsFolder = root + "/docs/decisions"

var (
	decisionTitle  = regexp.MustCompile(`^# (\d+)\. (.+)\n`)
	decisionStatus = regexp.MustCompile(`(?m)^\*\*Status\*\*: ([^,]+), (\d{4}-\d{2}-\d{2})\.(?: (.+))?$`)
	decisionTable  = regexp.MustCompile(`(?s)(<!-- generated: decisions -->\n).*(<!-- end -->)`)
)

// TestDecisions: the index has every decision with its title, date and status.
func TestDecisions(t *testing.T) {
	paths, err := filepath.Glob(filepath.Join(decisionsFolder, "0*.md"))
	require.NoError(t, err)
	require.NotEmpty(t, paths)
	var table strings.Builder
	table.WriteString("\n| number | decision | date | status |\n|---|---|---|---|\n")
	for _, path := range paths {
		text := string(read(t, path).text)
		title := decisionTitle.FindStringSubmatch(text)
		require.NotNil(t, title, "%s begins with a line \"# NUMBER. TITLE\"", path)
		require.True(t, strings.HasPrefix(filepath.Base(path), fmt.Sprintf("%04s-", title[1])), "%s has the number %s", path, title[1])
		status := decisionStatus.FindStringSubmatch(text)
		require.NotNil(t, status, "%s has a line \"**Status**: STATUS, YYYY-MM-DD.\"", path)
		state := strings.TrimSpace(status[1] + ". " + status[3])
		fmt.Fprintf(&table, "| [%s](%s) | %s | %s | %s |\n", title[1], filepath.Base(path), title[2], status[2], strings.TrimSuffix(state, "."))
	}
	index := filepath.Join(decisionsFolder, "README.md")
	before := string(read(t, index).text)
	require.Regexp(t, decisionTable, before)
	after := decisionTable.ReplaceAllString(before, "${1}"+table.String()+"\n${2}")
	if *update {
		require.NoError(t, os.WriteFile(index, []byte(after), 0o644))
		return
	}
	require.Equal(t, after, before, "write the index again: go test ./test/docs -run TestDecisions -update")
}
