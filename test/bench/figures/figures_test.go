package figures

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestFigures(t *testing.T) {
	within, outside := AtMost("pace", time.Second, 2*time.Second), Rate("rate", "0.5", 0.5, 0.75)
	told := Unbound("all at once", "0.6")
	require.False(t, Outside([]Figure{within, told}), "a figure without a bound is never outside")
	require.True(t, Outside([]Figure{within, outside, told}))
	var out strings.Builder
	require.NoError(t, Write(&out, []Figure{within, outside, told}))
	lines := strings.Split(out.String(), "\n")
	require.Equal(t, []string{"pace", "1", "s", "at", "most", "2", "s", "within"}, strings.Fields(lines[1]))
	require.Equal(t, []string{"rate", "0.5", "at", "least", "0.75", "OUTSIDE"}, strings.Fields(lines[2]))
	require.Equal(t, []string{"all", "at", "once", "0.6"}, strings.Fields(lines[3]))
}
