*** Settings ***
Documentation       Reboots of what is behind the bridge, alone and together with it: the bridge goes on, and is in sync
...                 again in time. Needs BACKEND_KILL_COMMAND, BACKEND_START_COMMAND and BACKEND_EMPTY_COMMAND.
Resource            ../resources/entries.resource
Resource            ../resources/netvirt.resource

Suite Setup         Write A Pod
Suite Teardown      Remove All Entries

Test Tags           backend


*** Variables ***
${PODS}                 ${DRAFT02.data}/${POD.container}
${INTERFACE}            ${NAMESPACE}:${POD_NAME}
${SECOND_INTERFACE}     ${NAMESPACE}:${SECOND_POD_NAME}


*** Test Cases ***
What Comes Meanwhile Is There Afterwards
    Cut The Backend's Power
    ${body}=    Body    second-pod.json
    Request    POST    ${PODS}    ${body}    expected=204
    Wanted    ${INTERFACES}    ${SECOND_INTERFACE}
    Run Command    ${BACKEND_START_COMMAND}
    Wait For Sync
    Backend Should Have    ${INTERFACE}
    Backend Should Have    ${SECOND_INTERFACE}

What Went Meanwhile Is Gone Afterwards
    [Documentation]    The bridge is started anew too, and has no memory of what it wrote.
    Cut The Backend's Power
    Request    DELETE    ${PODS}/pods/${SECOND_POD_UID}    expected=200
    Cut The Power
    Run Command    ${BACKEND_START_COMMAND}
    Switch On
    Wait For Sync
    Backend Should Not Have    ${SECOND_INTERFACE}
    Backend Should Have    ${INTERFACE}

A Backend That Has Lost All Is Filled Again
    ${before}=    Wanted    ${VPN_INTERFACES}    ${INTERFACE}
    Cut The Backend's Power
    Run Command    ${BACKEND_EMPTY_COMMAND}
    Wait For Sync
    Backend Should Have    ${INTERFACE}
    ${after}=    Wanted    ${VPN_INTERFACES}    ${INTERFACE}
    Dictionaries Should Be Equal    ${after}    ${before}


*** Keywords ***
Write A Pod
    Skip If    $BACKEND_KILL_COMMAND == ''    no command cuts the backend's power
    Begin With Nothing
    ${body}=    Body    pod.json
    Request    POST    ${PODS}    ${body}    expected=204
    Wait For Sync
    Backend Should Have    ${INTERFACE}
