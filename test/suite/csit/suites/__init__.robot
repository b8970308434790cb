*** Settings ***
Documentation       RESTCONF as OpenDaylight's clients use it, in the manner of OpenDaylight's CSIT. Cases
...                 with the tag odl are so of a real OpenDaylight (Oxygen) too.
Resource            ../resources/controller.resource

Suite Setup         Open Sessions And Begin
Suite Teardown      Remove All Entries And Close


*** Keywords ***
Open Sessions And Begin
    Open Sessions
    Begin With Nothing

Remove All Entries And Close
    Remove All Entries
    Delete All Sessions
