package coe_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/coe"
)

func label(key, value string) coe.Labels { return coe.NewLabels(map[string]string{key: value}) }

func TestProfiles(t *testing.T) {
	var many []string
	for n := range 17 {
		many = append(many, fmt.Sprint("p", n))
	}
	const tooMany = "(more than 16 names, or a name with more than 253 characters)"
	for name, c := range map[string]struct{ names, want []string }{
		"none":      {[]string{"", " "}, nil},
		"two":       {[]string{" web ", "db", "web"}, []string{"db", "web"}},
		"UUID":      {[]string{"AAAAAAAA-0000-4000-8000-00000000000F", "ABC"}, []string{"ABC", "aaaaaaaa-0000-4000-8000-00000000000f"}},
		"byte 0":    {[]string{"a\x00b"}, []string{"a\uFFFDb"}},
		"16":        {append(slices.Clone(many[:16]), "p0", ""), slices.Sorted(slices.Values(many[:16]))},
		"17":        {many, []string{tooMany}},
		"long":      {[]string{"web", strings.Repeat("a", 254)}, []string{tooMany}},
		"long, UTF": {[]string{strings.Repeat("\x00", 100)}, []string{tooMany}},
	} {
		t.Run(name, func(t *testing.T) {
			labels := label("app", "web").WithProfiles(c.names...)
			require.Equal(t, c.want, slices.Collect(labels.Profiles()))
			require.Equal(t, label("app", "web").WithProfiles(c.want...), labels)
			value, found := labels.Get("app")
			require.True(t, found)
			require.Equal(t, "web", value)
			for _, name := range c.names[:1] {
				selector := coe.ProfileSelector(name)
				require.Equal(t, len(c.want) > 0 && c.want[0] != tooMany, selector.Matches(labels))
			}
		})
	}
}

// A pod has the profiles of its namespace, and none of its other labels.
func TestPodLabels(t *testing.T) {
	own := label("app", "web")
	require.Equal(t, own, coe.PodLabels(label("tier", "front"), own))
	require.Equal(t, own.WithProfiles("a", "b"), coe.PodLabels(label("tier", "front").WithProfiles("a"), own.WithProfiles("b")))
}
